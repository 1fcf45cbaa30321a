"""A split as a file: an .npz of `train_0`, `test_0`, and where there are any `unlabelled_0`, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcfl.data.npz import read_npz
from hpcfl.errors import BadInput
from hpcfl.utils.files import move_into_place, part_file

PARTS = ("train", "test", "unlabelled")


def read_split(file: str, samples: int, clients: int) -> list[tuple[np.ndarray, ...]]:
    """Returns every client's samples, exactly as given: indices into the prepared order."""
    found = read_npz(file, f"partition.file = {file!r}")
    there = 0
    while f"train_{there}" in found and f"test_{there}" in found:
        there += 1
    if there != clients:
        raise BadInput(
            f"partition.file = {file!r}: it has train_i and test_i of {there} clients, counted from 0, "
            f"but federation.clients = {clients}"
        )
    none = np.zeros(0, dtype=np.int64)
    split = []
    for client in range(clients):
        parts = [found.get(f"{part}_{client}", none) for part in PARTS]
        for part, index in zip(PARTS, parts, strict=True):
            if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
                raise BadInput(f"partition.file = {file!r}: {part}_{client} must be a list of integers")
            if len(index) and not (index.min() >= 0 and index.max() < samples):
                raise BadInput(
                    f"partition.file = {file!r}: {part}_{client} points beyond the data's {samples} samples"
                )
        used = np.concatenate(parts)
        if len(np.unique(used)) < len(used):
            raise BadInput(f"partition.file = {file!r}: client {client} has a sample twice")
        split.append(tuple(part.astype(np.int64) for part in parts))
    return split


def write_split(path: Path, split: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """Writes a split, so that another run, or another program, can use it exactly."""
    columns = {
        f"{part}_{client}": index
        for client, parts in enumerate(split)
        for part, index in zip(PARTS, parts, strict=True)
        if part != "unlabelled" or len(index)
    }
    with part_file(path) as part:
        with open(part, "wb") as file:  # savez would add .npz to a name
            np.savez(file, allow_pickle=False, **columns)
        move_into_place(part, path)
