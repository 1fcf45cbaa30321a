"""FEMNIST as LEAF writes it: JSON files of writers, who are natural clients."""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np

from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import ArraySamples, RawDataset
from hpcfl.errors import BadInput

SIDE = 28
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
ADVICE = (
    "clone https://github.com/TalwalkarLab/leaf, run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample in its "
    "data/femnist, and give that folder's data directory with --source"
)


def femnist(where: SourceFiles) -> RawDataset:
    """Opens LEAF's train and test files, or those of all data if it was not split."""
    if where.source is None:
        raise BadInput(f"femnist is made by LEAF's own scripts: {ADVICE}")
    top = where.directories[0]
    folders = {"train": sorted(top.glob("train/*.json")), "test": sorted(top.glob("test/*.json"))}
    if not folders["train"]:
        folders = {"train": sorted(top.glob("all_data/*.json")) or sorted(top.glob("*.json")), "test": []}
    if not folders["train"]:
        raise BadInput(f"{top} has no LEAF files (train/*.json, all_data/*.json or *.json): {ADVICE}")
    parts, writers = [], []
    for part, paths in folders.items():
        read = []
        for done, path in enumerate(paths):
            where.show(f"reading {part} files", done, len(paths))
            read += _read(path)
            where.given(path)
        parts.append(
            ArraySamples(
                np.concatenate([x for _, x, _ in read] or [np.zeros((0, SIDE, SIDE), dtype=np.uint8)]),
                np.concatenate([y for _, _, y in read] or [np.zeros(0, dtype=np.int64)]),
            )
        )
        writers += [name for name, _, y in read for _ in range(len(y))]
    names, writer = np.unique(writers, return_inverse=True)
    return RawDataset(
        parts[0], parts[1], CHARACTERS, gray=True, writer=writer, writers=tuple(map(str, names))
    )


def _read(path: Path) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Returns every writer of a file with samples and labels; LEAF's pixels are 0 … 1."""
    try:
        found, content = [], json.loads(path.read_bytes())
        sizes = dict(zip(content["users"], content["num_samples"], strict=True))
        for name, data in content["user_data"].items():
            x = np.asarray(data["x"], dtype=np.float32).reshape(-1, SIDE, SIDE)
            y = np.asarray(data["y"], dtype=np.int64)
            if not len(x) == len(y) == sizes.pop(name, -1) or not ((x >= 0) & (x <= 1)).all():
                raise ValueError(
                    f"writer {name} has {len(x)} images, {len(y)} labels, or pixels beyond 0 … 1"
                )
            found.append((name, np.rint(x * 255).astype(np.uint8), y))
        if sizes:
            raise ValueError(f"writer {next(iter(sizes))} has no samples")
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} is no LEAF file, or a damaged one ({error}): {ADVICE}") from None
