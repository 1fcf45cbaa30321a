import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpcfl.config import Partition
from hpcfl.data.partition import partition
from hpcfl.errors import BadInput

labels = st.integers(2, 8).flatmap(
    lambda classes: st.integers(60, 400).map(lambda n: np.random.default_rng(n).integers(0, classes, n))
)


@settings(max_examples=60, deadline=None)
@given(
    labels, st.integers(1, 12), st.sampled_from(["iid", "dirichlet"]), st.floats(0.05, 10), st.integers(0, 99)
)
def test_every_sample_has_one_owner_and_the_split_follows_the_seed(y, clients, name, alpha, seed):
    chosen = Partition(name=name, alpha=alpha, seed=seed, min_samples=2)
    try:
        splits = partition(y, clients, chosen)
    except BadInput:
        assume(False)
    every = np.concatenate([part for split in splits for part in (split.train, split.test)])
    np.testing.assert_array_equal(np.sort(every), np.arange(len(y)))
    for split, again in zip(splits, partition(y, clients, chosen), strict=True):
        np.testing.assert_array_equal(split.train, again.train)
        np.testing.assert_array_equal(split.test, again.test)
        assert len(split.train) + len(split.test) >= 2
        assert set(y[split.test]) <= set(y[split.train])
        for k in np.unique(y[split.train]):
            train, test = (y[split.train] == k).sum(), (y[split.test] == k).sum()
            assert abs(train - 0.75 * (train + test)) <= 0.5


def test_iid_shares_differ_by_one_at_most():
    splits = partition(np.repeat(np.arange(5), 41), 20, Partition(name="iid"))
    sizes = [len(split.train) + len(split.test) for split in splits]
    assert max(sizes) - min(sizes) <= 1


def test_a_small_alpha_concentrates_classes():
    y = np.repeat(np.arange(10), 500)
    owned = {}
    for alpha in (0.05, 100.0):
        splits = partition(y, 10, Partition(alpha=alpha, min_samples=1))
        owned[alpha] = np.mean([len(np.unique(y[split.train])) for split in splits])
    assert owned[0.05] < 5 < 9.5 < owned[100.0]


def test_an_impossible_draw_names_alpha_clients_and_the_smallest_client_reached():
    y = np.repeat(np.arange(2), 100)
    with pytest.raises(
        BadInput, match=r"alpha = 0.01: none of 1000 draws .* 20 clients .* the best left one with \d"
    ):
        partition(y, 20, Partition(alpha=0.01, min_samples=9))


def test_more_clients_than_samples():
    with pytest.raises(BadInput, match=r"clients = 50: 20 samples do not give every client"):
        partition(np.zeros(20, dtype=int), 50, Partition(min_samples=1))


def test_a_client_without_test_samples_is_named():
    with pytest.raises(BadInput, match=r"client \d+ has no test samples after the partition"):
        partition(np.arange(40) % 20, 20, Partition(name="iid", min_samples=1))
