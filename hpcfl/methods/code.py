"""Binary words of equal weight, far apart: which dimensions a class owns where they must be shared."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

FEW = 4000
"""Up to so many words all of them are candidates; beyond, as many are drawn."""
TRIES = 200
PATIENCE = 3


def code(words: int, length: int, weight: int, draw: np.random.Generator) -> np.ndarray:
    """Returns words with `weight` ones, no two alike: [words, length] bool.

    Each word in turn is the candidate that overlaps least with the one nearest to it, then least with all.
    """
    if comb(length, weight) < words:
        raise ValueError(f"there are fewer than {words} words of {length} with {weight} ones")
    every = _all_words(length, weight) if comb(length, weight) <= FEW else None
    chosen_WL = np.zeros((words, length), dtype=np.float32)  # whole numbers below 2²⁴: products are exact
    for n in range(words):
        candidate_CL = every if every is not None else _drawn(chosen_WL[:n], weight, draw)
        overlap_CW = candidate_CL @ chosen_WL[:n].T
        worst_C = overlap_CW.max(1, initial=0)
        cost_C = (worst_C * (n * weight + 1) + overlap_CW.sum(1)).astype(float)
        cost_C += draw.random(len(cost_C)) * 0.5  # ties by key
        cost_C[worst_C == weight] = np.inf
        best = np.argmin(cost_C)
        if cost_C[best] == np.inf:
            raise ValueError(f"found no more than {n} words of {length} with {weight} ones")
        chosen_WL[n] = candidate_CL[best]
    return chosen_WL.astype(bool)


def _all_words(length: int, weight: int) -> np.ndarray:
    word_CL = np.zeros((comb(length, weight), length), dtype=np.float32)
    for row, ones in zip(word_CL, combinations(range(length), weight), strict=True):
        row[list(ones)] = 1
    return word_CL


def _drawn(chosen_WL: np.ndarray, weight: int, draw: np.random.Generator) -> np.ndarray:
    """Returns words with ones where the words so far have few."""
    length = chosen_WL.shape[1]
    order_CL = np.argsort(chosen_WL.sum(0) + 1.5 * draw.random((TRIES, length)), axis=1)
    word_CL = np.zeros((TRIES, length), dtype=np.float32)
    np.put_along_axis(word_CL, order_CL[:, :weight], 1, axis=1)
    return word_CL


def overlap(word_WL: np.ndarray) -> int:
    """Returns how many ones the two nearest words share."""
    shared_WW = word_WL.astype(np.float32) @ word_WL.astype(np.float32).T
    np.fill_diagonal(shared_WW, 0)
    return int(shared_WW.max(initial=0))


@lru_cache(maxsize=2)
def best_code(words: int, length: int, key: int) -> np.ndarray:
    """Returns the code whose nearest words share the smallest part of their ones.

    Larger and larger weights are tried until three in a row are no better.
    """
    best, least, since = None, np.inf, 0
    for weight in range(1, length + 1):
        if comb(length, weight) < words:
            continue
        since += 1
        if since > PATIENCE:
            break
        tried_WL = code(words, length, weight, np.random.Generator(np.random.PCG64([key, weight])))
        share = overlap(tried_WL) / weight
        if share < least:
            best, least, since = tried_WL, share, 0
    if best is None:
        raise ValueError(f"{length} dimensions have fewer than {words} different sets of equal size")
    return best
