"""Constant-weight codes with small overlap: equally large sets of dimensions for classes that must share."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from hpcfl.errors import BadInput
from hpcfl.methods.code_search import overlap_bound, spread_words

MAX_ENUMERATED = 10_000
"""If there are at most so many words, all are candidates; otherwise candidates are drawn at random."""
CANDIDATES, MIN_CANDIDATES, LARGE = 200, 20, 50_000
"""Candidates per word; proportionally fewer where words × length exceeds LARGE, but at least the minimum."""
MAX_REDRAWS = 8
PATIENCE = 3
"""Weights in a row without improvement after which `best_code` stops."""


def constant_weight_code(words: int, length: int, weight: int, rng: np.random.Generator) -> np.ndarray:
    """Returns different words with `weight` ones each: [words, length] bool.

    Greedy: each next word is the candidate with the smallest largest overlap with the words so far, then the
    smallest sum of overlaps; `spread_words` improves the result.
    """
    if comb(length, weight) < words:
        raise ValueError(f"there are fewer than {words} words of {length} with {weight} ones")
    few = comb(length, weight) <= MAX_ENUMERATED
    choose = _choose_from_all if few else _choose_from_drawn
    chosen_WL = choose(words, length, weight, rng)
    return spread_words(chosen_WL, rng).astype(bool)


def _choose_from_all(words: int, length: int, weight: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the greedy choice where every word of this weight is a candidate."""
    candidate_CL = np.zeros((comb(length, weight), length), dtype=np.float32)
    for row, ones in zip(candidate_CL, combinations(range(length), weight), strict=True):
        row[list(ones)] = 1
    worst_C, sum_C = np.zeros((2, len(candidate_CL)), dtype=np.float32)
    chosen_W = np.zeros(words, dtype=np.int64)
    for n in range(words):
        chosen_W[n] = best = _best_candidate(worst_C, sum_C, n, weight, rng)
        overlap_C = candidate_CL @ candidate_CL[best]
        worst_C, sum_C = np.maximum(worst_C, overlap_C), sum_C + overlap_C
    return candidate_CL[chosen_W]


def _choose_from_drawn(words: int, length: int, weight: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the greedy choice among drawn candidates; raises ValueError if all drawn are already chosen."""
    candidates = max(MIN_CANDIDATES, min(CANDIDATES, CANDIDATES * LARGE // (words * length)))
    chosen_WL = np.zeros((words, length), dtype=np.float32)  # integers below 2²⁴: products are exact
    for n in range(words):
        used_L = chosen_WL[:n].sum(0)
        for redraw in range(MAX_REDRAWS):  # prefers little-used positions, with more noise at each redraw
            noise_CL = 1.5 * 4**redraw * rng.random((candidates * 2**redraw, length))
            ones_CX = np.argpartition(used_L + noise_CL, weight - 1, axis=1)[:, :weight]
            candidate_CL = np.zeros_like(noise_CL, dtype=np.float32)
            np.put_along_axis(candidate_CL, ones_CX, 1, axis=1)
            overlap_CW = candidate_CL @ chosen_WL[:n].T
            worst_C = overlap_CW.max(1, initial=0)
            if worst_C.min() < weight:
                break
        else:
            raise ValueError(f"found no more than {n} words of {length} with {weight} ones")
        chosen_WL[n] = candidate_CL[_best_candidate(worst_C, overlap_CW.sum(1), n, weight, rng)]
    return chosen_WL


def _best_candidate(
    worst_C: np.ndarray, sum_C: np.ndarray, n: int, weight: int, rng: np.random.Generator
) -> int:
    """Returns the candidate with the smallest largest overlap, then sum of overlaps; ties at random."""
    cost_C = worst_C.astype(float) * (n * weight + 1) + sum_C
    cost_C += rng.random(len(cost_C)) * 0.5
    cost_C[worst_C == weight] = np.inf  # already chosen
    return int(np.argmin(cost_C))


def max_overlap(word_WL: np.ndarray) -> int:
    """Returns the largest number of ones that two words share."""
    shared_WW = word_WL.astype(np.float32) @ word_WL.astype(np.float32).T
    np.fill_diagonal(shared_WW, 0)
    return int(shared_WW.max(initial=0))


@lru_cache(maxsize=2)
def best_code(words: int, length: int, key: int) -> np.ndarray:
    """Returns the code with the smallest largest overlap relative to its weight.

    Weights are tried in increasing order until PATIENCE of them in a row bring no improvement. A weight is
    skipped if it cannot improve: its overlap is at least `overlap_bound` and that of smaller weights.
    """
    best, best_ratio, not_better, shared = None, np.inf, 0, 0
    for weight in range(1, length + 1):
        if (
            comb(length, weight) < words
            or max(shared, overlap_bound(words, length, weight)) / weight >= best_ratio
        ):
            continue
        try:
            tried_WL = constant_weight_code(
                words, length, weight, np.random.Generator(np.random.PCG64([key, weight]))
            )
        except ValueError:
            continue
        shared = max_overlap(tried_WL)
        not_better += 1
        if shared / weight < best_ratio:
            best, best_ratio, not_better = tried_WL, shared / weight, 0
        if not_better == PATIENCE:
            break
    if best is None:
        raise BadInput(
            f"method.refine = 'nonnegative': found no {words} different sets of equal size among {length} "
            "dimensions; a larger models.features has more"
        )
    return best
