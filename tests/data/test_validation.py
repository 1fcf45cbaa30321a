"""Validation samples are taken from the training samples, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.data.partition import partition
from hpcfl.data.split_file import write_split
from hpcfl.errors import BadInput
from tests.helpers.partitions import assert_same_splits, config_of

Y = np.random.default_rng(0).integers(0, 6, 2400)
WAYS: dict[str, dict[str, Any]] = {
    "dirichlet": {},
    "published": {"style": "published"},
    "nway_kshot": {"name": "nway_kshot", "shots": 20, "unlabelled": 10},
}


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(WAYS)), st.floats(0.05, 0.6), st.integers(0, 99))
def test_training_samples_are_divided_by_class_and_all_else_stays(way, fraction, seed):
    changes = {"name": "dirichlet", "alpha": 1.0, "seed": seed} | WAYS[way]
    name = changes.pop("name")
    before = partition(Y, 5, config_of(name, **changes))
    after = partition(Y, 5, config_of(name, validation_fraction=fraction, **changes))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old.test, new.test)
        np.testing.assert_array_equal(old.unlabelled, new.unlabelled)
        held = np.isin(old.train, new.validation)
        np.testing.assert_array_equal(old.train[~held], new.train, "in the order that they had")
        assert held.sum() == len(new.validation)
        classes, both = np.unique(Y[old.train], return_counts=True)
        kept = np.array([(Y[new.train] == k).sum() for k in classes])
        assert (kept >= 1).all()
        if both.min() > 1 / (1 - fraction):
            assert (abs(kept - (1 - fraction) * both) <= 1).all()
    assert_same_splits(after, partition(Y, 5, config_of(name, validation_fraction=fraction, **changes)))


def test_a_split_file_keeps_validation_samples(tmp_path):
    splits = partition(Y, 4, config_of("iid", validation_fraction=0.2))
    file = str(tmp_path / "split.npz")
    write_split(tmp_path / "split.npz", [(s.train, s.test, s.unlabelled, s.validation) for s in splits])
    read = partition(Y, 4, config_of("file", file=file))
    assert_same_splits(splits, read)
    for split, again in zip(splits, read, strict=True):
        np.testing.assert_array_equal(split.validation, again.validation)
    with pytest.raises(BadInput, match="has validation samples already"):
        partition(Y, 4, config_of("file", file=file, validation_fraction=0.2))


def test_a_share_too_small_for_any_sample_is_refused():
    with pytest.raises(BadInput, match=r"validation_fraction = 0.01: leaves every client without"):
        partition(np.tile(np.arange(3), 20), 3, config_of("iid", validation_fraction=0.01))
