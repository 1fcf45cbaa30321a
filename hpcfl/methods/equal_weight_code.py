"""Binary words of equal weight, far apart: which dimensions a class owns where they must be shared."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from hpcfl.errors import BadInput
from hpcfl.methods.code_search import least_overlap, spread_words

FEW = 10_000
"""Up to so many words all of them are candidates; beyond, some are drawn."""
TRIES, LEAST_TRIES, LARGE = 200, 20, 50_000
"""Words drawn at a time; fewer in proportion where words × length is larger than this."""
REDRAWS = 8
PATIENCE = 3


def equal_weight_code(words: int, length: int, weight: int, draw: np.random.Generator) -> np.ndarray:
    """Returns words with `weight` ones, no two alike: [words, length] bool.

    Each word in turn is the candidate that overlaps least with the one nearest to it, then least with all;
    `spread` moves ones afterwards.
    """
    if comb(length, weight) < words:
        raise ValueError(f"there are fewer than {words} words of {length} with {weight} ones")
    few = comb(length, weight) <= FEW
    chosen_WL = _of_all(words, length, weight, draw) if few else _of_drawn(words, length, weight, draw)
    return spread_words(chosen_WL, draw).astype(bool)


def _of_all(words: int, length: int, weight: int, draw: np.random.Generator) -> np.ndarray:
    """Returns the words that are found where every word is a candidate."""
    candidate_CL = np.zeros((comb(length, weight), length), dtype=np.float32)
    for row, ones in zip(candidate_CL, combinations(range(length), weight), strict=True):
        row[list(ones)] = 1
    worst_C, sum_C = np.zeros((2, len(candidate_CL)), dtype=np.float32)
    chosen_W = np.zeros(words, dtype=np.int64)
    for n in range(words):
        chosen_W[n] = best = _least(worst_C, sum_C, n, weight, draw)
        overlap_C = candidate_CL @ candidate_CL[best]
        worst_C, sum_C = np.maximum(worst_C, overlap_C), sum_C + overlap_C
    return candidate_CL[chosen_W]


def _of_drawn(words: int, length: int, weight: int, draw: np.random.Generator) -> np.ndarray:
    """Returns the words that are found among drawn ones; raises ValueError where all drawn are known."""
    tries = max(LEAST_TRIES, min(TRIES, TRIES * LARGE // (words * length)))
    chosen_WL = np.zeros((words, length), dtype=np.float32)  # whole numbers below 2²⁴: products are exact
    for n in range(words):
        used_L = chosen_WL[:n].sum(0)
        for redraw in range(REDRAWS):  # ones where words so far have few; then less and less so
            noise_CL = 1.5 * 4**redraw * draw.random((tries * 2**redraw, length))
            ones_CX = np.argpartition(used_L + noise_CL, weight - 1, axis=1)[:, :weight]
            candidate_CL = np.zeros_like(noise_CL, dtype=np.float32)
            np.put_along_axis(candidate_CL, ones_CX, 1, axis=1)
            overlap_CW = candidate_CL @ chosen_WL[:n].T
            worst_C = overlap_CW.max(1, initial=0)
            if worst_C.min() < weight:
                break
        else:
            raise ValueError(f"found no more than {n} words of {length} with {weight} ones")
        chosen_WL[n] = candidate_CL[_least(worst_C, overlap_CW.sum(1), n, weight, draw)]
    return chosen_WL


def _least(worst_C: np.ndarray, sum_C: np.ndarray, n: int, weight: int, draw: np.random.Generator) -> int:
    """Returns the candidate of least overlap with the nearest of n words, then with all; ties by key."""
    cost_C = worst_C.astype(float) * (n * weight + 1) + sum_C
    cost_C += draw.random(len(cost_C)) * 0.5
    cost_C[worst_C == weight] = np.inf  # it is one of them
    return int(np.argmin(cost_C))


def overlap(word_WL: np.ndarray) -> int:
    """Returns how many ones the two nearest words share."""
    shared_WW = word_WL.astype(np.float32) @ word_WL.astype(np.float32).T
    np.fill_diagonal(shared_WW, 0)
    return int(shared_WW.max(initial=0))


@lru_cache(maxsize=2)
def best_code(words: int, length: int, key: int) -> np.ndarray:
    """Returns the code whose nearest words share the smallest part of their ones.

    Larger and larger weights are tried until three in a row are no better. Those are passed over that cannot
    be better: their words share at least `least_overlap`, and no less than words of smaller weight did.
    """
    best, least, since, shared = None, np.inf, 0, 0
    for weight in range(1, length + 1):
        if (
            comb(length, weight) < words
            or max(shared, least_overlap(words, length, weight)) / weight >= least
        ):
            continue
        try:
            tried_WL = equal_weight_code(
                words, length, weight, np.random.Generator(np.random.PCG64([key, weight]))
            )
        except ValueError:
            continue
        shared = overlap(tried_WL)
        since += 1
        if shared / weight < least:
            best, least, since = tried_WL, shared / weight, 0
        if since == PATIENCE:
            break
    if best is None:
        raise BadInput(
            f"method.refine = 'nonnegative': found no {words} different sets of equal size among {length} "
            "dimensions; a larger models.features has more"
        )
    return best
