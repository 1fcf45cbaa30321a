"""Reads and writes splits as .npz files with `train_0`, `test_0`, `train_1`, …, optionally more parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcfl.data.npz import read_npz
from hpcfl.errors import BadInput
from hpcfl.utils.files import move_into_place, temporary_path

PARTS = ("train", "test", "unlabelled", "validation")
"""The last two are optional."""


def read_split(file: str, samples: int, clients: int) -> list[tuple[np.ndarray, ...]]:
    """Returns every client's train, test, unlabelled and validation samples, exactly as in the file."""
    arrays = read_npz(file, f"partition.file = {file!r}")
    in_file = 0
    while f"train_{in_file}" in arrays and f"test_{in_file}" in arrays:
        in_file += 1
    if in_file != clients:
        raise BadInput(
            f"partition.file = {file!r}: it has train_i and test_i of {in_file} clients, counted from 0, "
            f"but federation.clients = {clients}"
        )
    empty = np.zeros(0, dtype=np.int64)
    split = []
    for client in range(clients):
        parts = [arrays.get(f"{part}_{client}", empty) for part in PARTS]
        for part, index in zip(PARTS, parts, strict=True):
            if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
                raise BadInput(f"partition.file = {file!r}: {part}_{client} must be a list of integers")
            if len(index) and not (index.min() >= 0 and index.max() < samples):
                raise BadInput(
                    f"partition.file = {file!r}: {part}_{client} points beyond the data's {samples} samples"
                )
        client_samples = np.concatenate(parts)
        if len(np.unique(client_samples)) < len(client_samples):
            raise BadInput(f"partition.file = {file!r}: client {client} has a sample twice")
        split.append(tuple(part.astype(np.int64) for part in parts))
    return split


def write_split(path: Path, split: Sequence[tuple[np.ndarray, ...]]) -> None:
    """Writes a split, so that another run or program can use exactly the same."""
    arrays = {
        f"{part}_{client}": index
        for client, parts in enumerate(split)
        for part, index in zip(PARTS, parts, strict=False)
        if part in PARTS[:2] or len(index)
    }
    with temporary_path(path) as temporary:
        with open(temporary, "wb") as file:  # given a name, savez would append .npz
            np.savez(file, allow_pickle=False, **arrays)
        move_into_place(temporary, path)
