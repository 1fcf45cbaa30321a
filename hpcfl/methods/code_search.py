"""Local search that reduces the overlap between the words of a constant-weight code."""

from __future__ import annotations

import numpy as np

MAX_MOVES, LARGE = 5000, 40_000
"""Moves of the search; proportionally fewer where words × length exceeds LARGE."""
PAIR_COST = np.array([1, 1 / 4, 1 / 16], dtype=np.float32)
"""Cost of a pair with the largest overlap, one less, two less; powers of 4: float32 sums are exact."""
ACCEPT_WORSE = 0.1
"""Probability of making a move that does not reduce the cost."""


def overlap_bound(words: int, length: int, weight: int) -> int:
    """Returns a lower bound of the largest overlap: the mean over pairs if all positions are used equally."""
    if words < 2:
        return 0
    uses, remainder = divmod(words * weight, length)
    shared = (length - remainder) * uses * (uses - 1) // 2 + remainder * uses * (uses + 1) // 2
    return -(-shared // (words * (words - 1) // 2))


def spread_words(word_WL: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns words of the same weight with at most the same largest overlap, usually a smaller one.

    Each iteration takes a word of a pair with the largest overlap and moves one of its ones to the best other
    position. No move creates an overlap above the largest one, so words stay different.
    """
    words, length = word_WL.shape
    word_WL = word_WL.astype(np.float32)
    bound = overlap_bound(words, length, int(word_WL[0].sum()))
    shared_WW = word_WL @ word_WL.T
    np.fill_diagonal(shared_WW, -1)
    largest_W = shared_WW.max(1)
    for _ in range(min(MAX_MOVES, MAX_MOVES * LARGE // (words * length))):
        largest = largest_W.max()
        if largest <= bound:
            break
        w = rng.choice(np.flatnonzero(largest_W == largest))
        if (move := _best_move(word_WL, shared_WW[w], w, largest, rng)) is None:
            continue
        change_W = word_WL[:, move[1]] - word_WL[:, move[0]]
        change_W[w] = 0
        word_WL[w, move] = 0, 1
        reduced_W = (change_W < 0) & (shared_WW[w] == largest_W)
        shared_WW[w] += change_W
        shared_WW[:, w] += change_W
        largest_W = np.maximum(largest_W, shared_WW[w])
        reduced_W[w] = True
        largest_W[reduced_W] = shared_WW[reduced_W].max(1)
    return word_WL


def _best_move(
    word_WL: np.ndarray, shared_W: np.ndarray, w: int, largest: float, rng: np.random.Generator
) -> list[int] | None:
    """Returns the positions [from, to] of the best move of a one of word w, ties at random; None if none.

    A move from i to j changes the overlap with word v by x_vj − x_vi, and so its cost by the factor
    4^(x_vj − x_vi) = (1 − ¾ x_vi)(1 + 3 x_vj).
    """
    near = shared_W > largest - len(PAIR_COST)
    near_VL, pair_V = word_WL[near], PAIR_COST[(largest - shared_W[near]).astype(int)]
    ones_I, zeros_J = np.flatnonzero(word_WL[w]), np.flatnonzero(word_WL[w] == 0)
    from_VI, to_VJ = near_VL[:, ones_I], near_VL[:, zeros_J]
    cost_IJ = (pair_V[:, None] * (1 - 0.75 * from_VI)).T @ (1 + 3 * to_VJ)
    largest_V = pair_V == 1
    cost_IJ[(1 - from_VI[largest_V]).T @ to_VJ[largest_V] > 0] = np.inf
    least = cost_IJ.min()
    if least == np.inf or (least > pair_V.sum() and rng.random() >= ACCEPT_WORSE):
        return None
    i, j = divmod(int(rng.choice(np.flatnonzero(cost_IJ == least))), len(zeros_J))
    return [ones_I[i], zeros_J[j]]
