"""Moving ones of words apart: the best move by loops, and what must stay as it was."""

import numpy as np
import pytest

from hpcfl.methods.code_search import _best_move, overlap_bound, spread_words
from hpcfl.methods.constant_weight_code import max_overlap


def drawn(words: int, length: int, weight: int, seed: int) -> np.ndarray:
    """Returns random words of equal weight, no two alike."""
    random = np.random.default_rng(seed)
    found: set[tuple[int, ...]] = set()
    while len(found) < words:
        found.add(tuple(sorted(random.choice(length, weight, replace=False).tolist())))
    word_WL = np.zeros((words, length), dtype=np.float32)
    for row, ones in zip(word_WL, sorted(found), strict=True):
        row[list(ones)] = 1
    return word_WL


@pytest.mark.parametrize("seed", range(6))
def test_the_best_move_is_that_of_all_moves_written_out(seed):
    """Words three below the nearest do not count, and none may come nearer than the nearest is."""
    word_WL = drawn(9, 12, 5, seed)
    most = max_overlap(word_WL)
    w = next(w for w in range(9) if any(word_WL[w] @ word_WL[v] == most for v in range(9) if v != w))
    shared_W = word_WL @ word_WL[w]
    shared_W[w] = -1
    near = [v for v in range(9) if shared_W[v] > most - 3]
    cost: dict[tuple[int, ...], float] = {}
    for i in np.flatnonzero(word_WL[w]):
        for j in np.flatnonzero(word_WL[w] == 0):
            moved_L = word_WL[w].copy()
            moved_L[[i, j]] = 0, 1
            after = [int(moved_L @ word_WL[v]) for v in near]
            if max(after) <= most:
                cost[int(i), int(j)] = sum(4.0 ** (shared - most) for shared in after)
    now = sum(4.0 ** (shared_W[v] - most) for v in near)
    move = _best_move(word_WL, shared_W, w, float(most), np.random.default_rng(0))
    if move is None:
        assert not cost or min(cost.values()) > now
    else:
        assert cost[tuple(move)] == min(cost.values())


@pytest.mark.parametrize(("words", "length", "weight"), [(20, 16, 8), (30, 10, 4), (100, 64, 8), (12, 6, 2)])
def test_words_stay_different_and_of_their_weight_and_move_apart(words, length, weight):
    before_WL = drawn(words, length, weight, 0)
    after_WL = spread_words(before_WL, np.random.default_rng(0))
    assert set(np.unique(after_WL)) == {0, 1}
    assert (after_WL.sum(1) == weight).all()
    assert len({row.tobytes() for row in after_WL}) == words
    assert max_overlap(after_WL) < max_overlap(before_WL) or max_overlap(before_WL) == weight - 1 == 1
    assert np.array_equal(after_WL, spread_words(before_WL, np.random.default_rng(0)))


def test_the_least_overlap_by_hand():
    """Ten words with five ones in ten places: five ones a place, 10 · 10 shared, over 45 pairs: 3 in some."""
    assert overlap_bound(10, 10, 5) == 3
    assert overlap_bound(7, 7, 3) == 1
    assert overlap_bound(3, 6, 2) == 0
    assert overlap_bound(4, 6, 2) == 1
    assert overlap_bound(1, 6, 2) == 0


def test_where_all_words_are_taken_none_can_move():
    """The 70 words of eight places with four ones: every move would make two of them alike."""
    before_WL = drawn(70, 8, 4, 0)
    assert overlap_bound(70, 8, 4) < max_overlap(before_WL) == 3
    assert np.array_equal(spread_words(before_WL, np.random.default_rng(0)), before_WL)
