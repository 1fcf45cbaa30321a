"""Partitions: who gets what, in general under hypothesis and in detail by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpcfl.data.partition import Split, partition
from hpcfl.data.partitioners import class_owners
from hpcfl.errors import BadInput
from tests.helpers.partitions import assert_same_splits, config_of

labels = st.integers(2, 8).flatmap(
    lambda classes: st.integers(60, 400).map(lambda n: np.random.default_rng(n).integers(0, classes, n))
)


def everything(splits: list[Split]) -> np.ndarray:
    return np.concatenate([part for split in splits for part in (split.train, split.test)])


def assert_split(y: np.ndarray, split: Split) -> None:
    """Three quarters of all, about so much of each class, every class in training."""
    classes, both = np.unique(y[np.concatenate([split.train, split.test])], return_counts=True)
    train = np.array([(y[split.train] == k).sum() for k in classes])
    assert (train >= 1).all()
    alone = (
        both == 1
    ).sum()  # a class of one sample can only train; others make up for it as far as they can
    assert abs(train.sum() - 0.75 * both.sum()) <= 0.5 + 0.25 * alone
    if alone == 0:
        assert (abs(train - 0.75 * both) <= 1).all()


@settings(max_examples=100, deadline=None)
@given(
    labels,
    st.integers(1, 12),
    st.sampled_from(["iid", "dirichlet", "pathological"]),
    st.floats(0.05, 10),
    st.integers(1, 8),
    st.integers(0, 99),
)
def test_every_sample_has_one_owner_and_the_split_follows_the_seed(y, clients, name, alpha, each, seed):
    chosen = config_of(name, alpha=alpha, classes_per_client=each, seed=seed, min_samples=2)
    try:
        splits = partition(y, clients, chosen)
    except BadInput:
        assert name != "iid" or len(y) < 8 * clients, "a refusal without a reason"
        assume(False)
    np.testing.assert_array_equal(np.sort(everything(splits)), np.arange(len(y)))
    assert_same_splits(splits, partition(y, clients, chosen))
    for split in splits:
        assert len(split.train) + len(split.test) >= 2
        assert_split(y, split)
    if name == "pathological":
        assert {len(np.unique(y[split.train])) for split in splits} == {each}
    if name == "iid":
        sizes = [len(split.train) + len(split.test) for split in splits]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=20), st.integers(7, 12), st.integers(0, 9))
def test_classes_are_dealt_evenly_and_nobody_holds_one_twice(numbers, classes, seed):
    owners = class_owners(np.array(numbers), classes, np.random.default_rng(seed))
    sizes = [len(mine) for mine in owners]
    assert max(sizes) - min(sizes) <= 1
    assert all(len(set(mine)) == len(mine) for mine in owners)
    assert np.bincount(np.concatenate(owners).astype(int), minlength=len(numbers)).tolist() == numbers


def test_many_small_classes_still_give_three_quarters():
    """100 classes of 2: 150 train, every class among them, and half of the classes are tested."""
    (split,) = partition(np.repeat(np.arange(100), 2), 1, config_of("iid"))
    assert (len(split.train), len(split.test)) == (150, 50)
    assert len(np.unique(split.train // 2)) == 100


@settings(max_examples=40, deadline=None)
@given(labels, st.integers(1, 8), st.floats(0.1, 5), st.integers(0, 9))
def test_published_dirichlet_gives_every_sample_one_owner(y, clients, alpha, seed):
    chosen = config_of("dirichlet", style="published", alpha=alpha, seed=seed)
    try:
        splits = partition(y, clients, chosen)
    except BadInput:
        assume(False)
    np.testing.assert_array_equal(np.sort(everything(splits)), np.arange(len(y)))
    least = int(min(40, len(y) / clients / 2))
    assert min(len(split.train) + len(split.test) for split in splits) >= least
    assert_same_splits(splits, partition(y, clients, chosen))


def test_a_small_alpha_concentrates_classes():
    y = np.repeat(np.arange(10), 500)
    owned = {}
    for alpha in (0.05, 100.0):
        splits = partition(y, 10, config_of("dirichlet", alpha=alpha, min_samples=1))
        owned[alpha] = np.mean([len(np.unique(y[split.train])) for split in splits])
    assert owned[0.05] < 5 < 9.5 < owned[100.0]


def test_the_last_client_is_not_left_one_of_every_class():
    """Shares that add up to 0.999… must not leave a sample over: 100 classes, α small."""
    y = np.repeat(np.arange(100), 200)
    splits = partition(y, 20, config_of("dirichlet", alpha=0.1))
    held = [len(np.unique(y[split.train])) for split in splits]
    assert held[-1] < 2 * np.mean(held)


def test_pathological_sizes_are_unbalanced():
    y = np.repeat(np.arange(10), 600)
    sizes = [len(split.train) for split in partition(y, 20, config_of("pathological"))]
    assert max(sizes) > 1.5 * min(sizes)


@pytest.mark.parametrize(
    "given",
    [
        {"alpha": 0.001, "min_samples": 9},
        {"alpha": 0.001, "style": "published"},
        {"min_samples": 30},
        {"alpha": 100.0, "min_samples": 10},
    ],
)
def test_what_a_refused_dirichlet_split_names_works(given):
    """For 20 clients, 200 samples of two classes: each value that the message names is tried."""
    y = np.repeat(np.arange(2), 100)
    with pytest.raises(BadInput) as problem:
        partition(y, 20, config_of("dirichlet", **given))
    advice = str(problem.value).split("; ")[-1]
    assert advice.endswith("would work")
    for key, text in re.findall(r"(\S+) = (\S+)", advice):
        section, _, name = key.partition(".")
        number, changes = (int(text), {}) if section == "federation" else (20, {name: json.loads(text)})
        assert len(partition(y, number, config_of("dirichlet", **given | changes))) == number


def test_clients_with_too_few_samples_are_advised_the_least_change_that_works():
    """Of 6 samples for each client on average a half of the default, 5, is too many for any draw."""
    y = np.repeat(np.arange(6), 100)
    with pytest.raises(BadInput, match=r"; partition.min_samples = 3 would work$"):
        partition(y, 100, config_of("dirichlet"))
    assert len(partition(y, 100, config_of("dirichlet", min_samples=3))) == 100


def test_an_impossible_draw_names_alpha_clients_and_the_smallest_client_reached():
    y = np.repeat(np.arange(2), 100)
    said = r"alpha = 0.0001: none of 1000 draws .* 20 clients .* the best left one with \d"
    with pytest.raises(BadInput, match=said):
        partition(y, 20, config_of("dirichlet", alpha=0.0001, min_samples=9))


def test_a_hundred_clients_get_a_dirichlet_split_although_no_draw_serves_all():
    """α = 0.1, six classes: in the best of 1000 draws the smallest client has 3% of an even share."""
    y, chosen = np.repeat(np.arange(6), 1000), config_of("dirichlet", alpha=0.1)
    splits = partition(y, 100, chosen)
    np.testing.assert_array_equal(np.sort(everything(splits)), np.arange(len(y)))
    assert min(len(split.train) + len(split.test) for split in splits) >= 10
    assert np.mean([len(np.unique(y[split.train])) for split in splits]) < 3, "still skewed"
    assert_same_splits(splits, partition(y, 100, chosen))


def test_a_class_too_small_for_its_only_owner():
    said = r"= 1: none of 1000 draws gave each of 2 clients .* = 5 samples; the best left one with 4"
    with pytest.raises(BadInput, match=said):
        partition(
            np.repeat([0, 1], [16, 4]),
            2,
            config_of("pathological", classes_per_client=1, min_samples=5),
        )


@pytest.mark.parametrize(
    ("clients", "chosen", "says"),
    [
        (50, config_of("iid", min_samples=1), "clients = 50: 20 samples do not give every client"),
        (20, config_of("iid", min_samples=1), r"client \d+ has no test samples after the partition"),
        (2, config_of("pathological", min_samples=1, classes_per_client=6), "= 6: the data has 5 classes"),
        (2, config_of("pathological", min_samples=1), "= 2: with 2 clients some of the 5 classes"),
        (15, config_of("pathological", min_samples=1), "= 2: class 0 has 4 samples for its 6 clients"),
        (4, config_of("nway_kshot", ways=2, shots=5, deviation=0), r"the \d clients of class \d ask for \d+"),
        (2, config_of("natural"), "this dataset does not say who wrote what"),
        (8, config_of("pathological", style="published", classes_per_client=5), "no room to draw sizes"),
    ],
)  # fmt: skip
def test_what_cannot_be_dealt_says_why(clients, chosen, says):
    with pytest.raises(BadInput, match=says):
        partition(np.arange(20) % 5, clients, chosen)


# --- as published


def test_published_dirichlet_is_the_papers_own():
    """The counts that PFLlib's generator gives for CIFAR-10, seed 1, α = 0.1, 20 clients."""
    golden = json.loads((Path(__file__).parent / "dirichlet-cifar10-a0.1-m20.json").read_text())
    y = np.repeat(np.arange(10), 6000)
    splits = partition(y, 20, config_of("dirichlet", style="published", alpha=0.1, seed=1))
    got = [np.bincount(y[np.concatenate([s.train, s.test])], minlength=10).tolist() for s in splits]
    assert got == golden["counts"]
    np.testing.assert_array_equal(np.sort(everything(splits)), np.arange(60000))
    for split in splits:
        assert len(split.train) == int(0.75 * (len(split.train) + len(split.test)))


def test_published_pathological_by_hand():
    """4 clients, 4 classes, 2 each: classes 0, 1 go to clients 0, 1, classes 2, 3 to clients 2, 3.

    Of each class of 40, its first owner takes randint(max(20/10, least/4), 20) in file order, the second the
    rest; then each client's samples are permuted, its first quarter tests.
    """
    y = np.tile(np.arange(4), 40)
    splits = partition(y, 4, config_of("pathological", style="published", seed=1))
    rng = np.random.RandomState(1)
    least = int(min(40, 160 / 4 / 2))
    mine: list[list[int]] = [[] for _ in range(4)]
    for k in range(4):
        first = 0 if k < 2 else 2
        size = rng.randint(int(max(2, least / 4)), 20, 1)[0]
        indices = [i for i in range(160) if y[i] == k]
        mine[first] += indices[:size]
        mine[first + 1] += indices[size:]
    for client in range(4):
        order = rng.permutation(len(mine[client]))
        train = int(0.75 * len(order))
        want = [mine[client][place] for place in order]
        assert splits[client].test.tolist() == want[: len(order) - train]
        assert splits[client].train.tolist() == want[len(order) - train :]


def test_published_pathological_leaves_classes_to_nobody():
    """102 classes, 20 clients of 10: ceil(20/102·10) = 2 owners each, so 100 classes use up all room."""
    y = np.repeat(np.arange(102), 80)
    splits = partition(y, 20, config_of("pathological", classes_per_client=10, style="published"))
    assert sorted(set(y) - set(y[everything(splits)])) == [100, 101]
    assert set(y[everything(partition(y, 20, config_of("pathological", classes_per_client=10)))]) == set(y)


# --- n-way k-shot


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12), st.floats(1, 6), st.floats(1, 20), st.floats(0, 3), st.integers(0, 30), st.booleans()
)
def test_nway_kshot(clients, ways, shots, deviation, unlabelled, has_test):
    y = np.tile(np.arange(6), 400)
    train = 1800 if has_test else None
    chosen = config_of("nway_kshot", ways=ways, shots=shots, deviation=deviation, unlabelled=unlabelled)
    splits = partition(y, clients, chosen, train)
    assert_same_splits(splits, partition(y, clients, chosen, train))
    taken = np.concatenate([part for split in splits for part in (split.train, split.unlabelled)])
    assert len(np.unique(taken)) == len(taken)
    tested = np.unique(np.concatenate([split.test for split in splits]))
    assert not np.isin(taken, tested).any()
    if has_test:
        assert taken.max() < 1800 <= tested.min()
    for split in splits:
        classes, counts = np.unique(y[split.train], return_counts=True)
        assert len(set(counts)) == 1, "the same number of shots of each class"
        assert 2 <= len(classes) <= 6
        assert len(split.unlabelled) == unlabelled
        assert set(y[split.unlabelled]) <= set(classes)
        common = np.flatnonzero(np.isin(y, classes))
        if has_test:
            np.testing.assert_array_equal(split.test, common[common >= 1800])
    if deviation == 0:
        assert {len(np.unique(y[split.train])) for split in splits} == {max(2, round(ways))}


def test_classes_that_occur_only_in_the_test_part_are_not_dealt():
    y = np.concatenate([np.tile(np.arange(3), 100), np.full(30, 3), np.tile(np.arange(3), 10)])
    for split in partition(y, 4, config_of("nway_kshot", ways=3, shots=10, deviation=0), num_train=300):
        assert set(y[split.train]) == set(y[split.test]) == {0, 1, 2}


def test_ways_and_shots_are_drawn_around_their_means():
    y = np.tile(np.arange(50), 4000)
    splits = partition(y, 200, config_of("nway_kshot", ways=10, shots=50, deviation=4))
    ways = np.array([len(np.unique(y[split.train])) for split in splits])
    shots = np.array([len(split.train) for split in splits]) / ways
    for drawn, mean in ((ways, 10), (shots, 50)):
        assert abs(drawn.mean() - mean) < 1
        assert 3 < drawn.std() < 5


# --- writers


def test_natural_clients_are_writers_with_enough_samples():
    writer = np.repeat(np.arange(6), [30, 3, 20, 40, 9, 12])
    np.random.default_rng(0).shuffle(writer)
    y = np.arange(len(writer)) % 2
    splits = partition(y, 3, config_of("natural", min_samples=12), writer_ids=writer)
    owners = []
    for split in splits:
        mine = np.concatenate([split.train, split.test])
        (who,) = set(writer[mine])
        assert len(mine) == (writer == who).sum() >= 12
        owners.append(who)
    assert sorted(set(owners)) == owners
    with pytest.raises(BadInput, match=r"clients = 5: only 4 of 6 writers have partition\.min_samples = 12"):
        partition(y, 5, config_of("natural", min_samples=12), writer_ids=writer)


@pytest.mark.parametrize("seed", range(8))
def test_a_client_with_a_class_of_two_has_a_test_sample(seed):
    """Six classes of one sample, and one of two, whose 1.5 round to 2 if it comes first."""
    y = np.array([0, 1, 2, 3, 4, 5, 6, 6])
    (split,) = partition(y, 1, config_of("iid", seed=seed, min_samples=2))
    assert (len(split.train), y[split.test].tolist()) == (7, [6])
