"""Words of equal weight moved apart, one of their ones at a time."""

from __future__ import annotations

import numpy as np

MOVES, LARGE = 5000, 40_000
"""Steps of the search; fewer in proportion where words × length is larger than this."""
COUNT = np.array([1, 1 / 4, 1 / 16], dtype=np.float32)
"""What a pair counts that shares as many ones as the nearest pair, one less, two less: sums are exact."""
WORSE = 0.1
"""How often a move is made although it brings no gain."""


def least_overlap(words: int, length: int, weight: int) -> int:
    """Returns what the two nearest words share at least: the mean over pairs, with all places used alike."""
    if words < 2:
        return 0
    each, more = divmod(words * weight, length)
    shared = (length - more) * each * (each - 1) // 2 + more * each * (each + 1) // 2
    return -(-shared // (words * (words - 1) // 2))


def spread_words(word_WL: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Returns words of the same weight whose nearest pair shares no more ones, mostly fewer.

    Step by step a word of a nearest pair makes its best move of a one. It never comes nearer to another word
    than the nearest pair is, so no two become alike.
    """
    words, length = word_WL.shape
    word_WL = word_WL.astype(np.float32)
    aim = least_overlap(words, length, int(word_WL[0].sum()))
    shared_WW = word_WL @ word_WL.T
    np.fill_diagonal(shared_WW, -1)
    nearest_W = shared_WW.max(1)
    for _ in range(min(MOVES, MOVES * LARGE // (words * length))):
        most = nearest_W.max()
        if most <= aim:
            break
        w = draw.choice(np.flatnonzero(nearest_W == most))
        if (move := _best_move(word_WL, shared_WW[w], w, most, draw)) is None:
            continue
        change_W = word_WL[:, move[1]] - word_WL[:, move[0]]
        change_W[w] = 0
        word_WL[w, move] = 0, 1
        loosened_W = (change_W < 0) & (shared_WW[w] == nearest_W)
        shared_WW[w] += change_W
        shared_WW[:, w] += change_W
        nearest_W = np.maximum(nearest_W, shared_WW[w])
        loosened_W[w] = True
        nearest_W[loosened_W] = shared_WW[loosened_W].max(1)
    return word_WL


def _best_move(
    word_WL: np.ndarray, shared_W: np.ndarray, w: int, most: float, draw: np.random.Generator
) -> list[int] | None:
    """Returns from where to where word w best moves a one, ties by key; None if nowhere.

    A move from i to j changes what is shared with word v by x_vj − x_vi, and so its count by the factor
    4^(x_vj − x_vi) = (1 − ¾ x_vi)(1 + 3 x_vj).
    """
    near = shared_W > most - len(COUNT)
    near_VL, count_V = word_WL[near], COUNT[(most - shared_W[near]).astype(int)]
    ones_I, zeros_J = np.flatnonzero(word_WL[w]), np.flatnonzero(word_WL[w] == 0)
    from_VI, to_VJ = near_VL[:, ones_I], near_VL[:, zeros_J]
    cost_IJ = (count_V[:, None] * (1 - 0.75 * from_VI)).T @ (1 + 3 * to_VJ)
    nearest_V = count_V == 1
    cost_IJ[(1 - from_VI[nearest_V]).T @ to_VJ[nearest_V] > 0] = np.inf
    least = cost_IJ.min()
    if least == np.inf or (least > count_V.sum() and draw.random() >= WORSE):
        return None
    i, j = divmod(int(draw.choice(np.flatnonzero(cost_IJ == least))), len(zeros_J))
    return [ones_I[i], zeros_J[j]]
