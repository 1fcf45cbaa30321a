"""A given split is used exactly, and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcfl.data.partition import partition
from hpcfl.data.split_file import write_split
from hpcfl.errors import BadInput
from tests.helpers.partitions import assert_same_splits, config_of


def test_a_split_is_written_and_used_exactly(tmp_path):
    y = np.tile(np.arange(6), 400)
    splits = partition(y, 5, config_of("nway_kshot", shots=20, unlabelled=10))
    write_split(tmp_path / "split.npz", [(s.train, s.test, s.unlabelled) for s in splits])
    assert_same_splits(splits, partition(y, 5, config_of("file", file=str(tmp_path / "split.npz"))))


GOOD = {"train_0": [3, 1], "test_0": [0], "train_1": [4], "test_1": [0, 2]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"train_2": [5]}, ""),
        ({"train_1": [5, 6]}, "train_1 points beyond the data's 6 samples"),
        ({"test_1": [-1]}, "test_1 points beyond"),
        ({"test_1": [0.5]}, "test_1 must be a list of integers"),
        ({"test_1": [[1]]}, "test_1 must be a list of integers"),
        ({"test_0": [1]}, "client 0 has a sample twice"),
        ({"train_0": []}, r"client 0 has no train samples .*partition.file gives it none"),
        ({"train_2": [5], "test_2": [4]}, r"test_i of 3 clients, counted from 0, but federation.clients = 2"),
    ],
)
def test_a_given_split_is_checked(tmp_path, change, says):
    arrays: dict[str, Any] = {name: np.array(value) for name, value in (GOOD | change).items()}
    np.savez(tmp_path / "s.npz", **arrays)
    chosen = config_of("file", file=str(tmp_path / "s.npz"))
    if not says:
        first, second = partition(np.zeros(6, dtype=int), 2, chosen)
        assert (first.train.tolist(), second.test.tolist()) == ([3, 1], [0, 2])
        return
    with pytest.raises(BadInput, match=says):
        partition(np.zeros(6, dtype=int), 2, chosen)


def test_a_file_that_is_no_split(tmp_path):
    with pytest.raises(BadInput, match=r"partition.file = '.*none.npz': No such file"):
        partition(np.zeros(6, dtype=int), 2, config_of("file", file=str(tmp_path / "none.npz")))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(BadInput, match=r"not an \.npz of plain arrays"):
        partition(np.zeros(6, dtype=int), 2, config_of("file", file=str(tmp_path / "text.npz")))
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(BadInput, match=r"not an \.npz of plain arrays"):
        partition(np.zeros(6, dtype=int), 2, config_of("file", file=str(tmp_path / "one.npy")))
