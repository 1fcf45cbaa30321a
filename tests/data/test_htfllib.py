"""Datasets of HtFLlib: pickled dictionaries, a file for each client and part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcfl.data.partition import partition
from tests.helpers.layouts import opened
from tests.helpers.partitions import config_of

SOURCE = ("own", "--source", "htfllib:files")


def write(part: str, client: int, x: Any, y: Any) -> None:
    folder = Path("files") / part
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{client}.npz", data=np.array({"x": x, "y": y}, dtype=object))


def test_dataset_and_split_are_those_of_the_files(prepare):
    random = np.random.default_rng(0)
    given = {
        (part, client): (random.random((n + client, 1, 4, 4), np.float32), random.integers(0, 3, n + client))
        for part, n in (("train", 9), ("test", 3))
        for client in range(12)
    }
    for (part, client), arrays in given.items():
        write(part, client, *arrays)
    said = prepare(*SOURCE, "--allow-pickle")
    assert "federation.clients = 12 and partition.file = 'root/own-split.npz'" in said
    data = opened("own")
    splits = partition(data.y, 12, config_of("file", file="root/own-split.npz"), data.num_train)
    for client, split in enumerate(splits):
        for part in ("train", "test"):
            x, y = given[part, client]
            index = getattr(split, part)
            np.testing.assert_array_equal(data.x[index], x)
            np.testing.assert_array_equal(np.array(data.class_names)[data.y[index]].astype(int), y)
            assert ((index < data.num_train) == (part == "train")).all()


@pytest.mark.parametrize(
    "x", [[([5, 7, 0], 2), ([6, 0, 0], 1)], [[5, 7, 0], [6, 0, 0]]], ids=["pairs", "lists"]
)
def test_texts_become_token_numbers(prepare, x):
    for part in ("train", "test"):
        write(part, 0, x, [1, 0])
    prepare(*SOURCE, "--allow-pickle")
    np.testing.assert_array_equal(opened("own").x, np.array(2 * [[5, 7, 0], [6, 0, 0]], np.int32))


def test_pickles_are_read_only_when_told_so_and_never_run(prepare):
    class Harmful:
        def __reduce__(self):
            return os.system, ("touch harmed",)

    for part in ("train", "test"):
        write(part, 0, [[1, 2]], [0])
    prepare(*SOURCE, code=2, says="these files are Python pickles; add --allow-pickle")
    write("test", 0, Harmful(), [0])
    prepare(*SOURCE, "--allow-pickle", code=2, says="files/test/0.npz: its pickle asks for posix.system")
    assert not Path("harmed").exists()


def test_what_is_missing_or_damaged_is_named(prepare):
    Path("files").mkdir()
    prepare(*SOURCE, "--allow-pickle", code=2, says="files must have train/0.npz, train/1.npz, …")
    write("train", 0, [[1, 2]], [0])
    write("train", 1, [[1, 2, 3]], [0])
    prepare(*SOURCE, "--allow-pickle", code=2, says="it has 2 in train and 0 in test")
    write("test", 0, [[1, 2]], [0])
    Path("files/test/1.npz").write_text("no zip")
    prepare(*SOURCE, "--allow-pickle", code=2, says="files/test/1.npz is not a file of HtFLlib")
    write("test", 1, [[1, 2]], [0])
    prepare(*SOURCE, "--allow-pickle", code=2, says="files/train: clients have samples of different")
