"""FEMNIST in LEAF's format: JSON files with the samples of each writer."""

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


def femnist(files: SourceFiles) -> RawDataset:
    """Opens LEAF's train and test files, or the files of all data if there is no split."""
    if files.source is None:
        raise BadInput(f"femnist is made by LEAF's own scripts: {ADVICE}")
    top = files.directories[0]
    paths_by_split = {"train": sorted(top.glob("train/*.json")), "test": sorted(top.glob("test/*.json"))}
    if not paths_by_split["train"]:
        paths_by_split = {
            "train": sorted(top.glob("all_data/*.json")) or sorted(top.glob("*.json")),
            "test": [],
        }
    if not paths_by_split["train"]:
        raise BadInput(f"{top} has no LEAF files (train/*.json, all_data/*.json or *.json): {ADVICE}")
    splits, writers = [], []
    for split, paths in paths_by_split.items():
        read = []
        for done, path in enumerate(paths):
            files.report_progress(f"reading {split} files", done, len(paths))
            read += _read(path)
            files.record(path)
        splits.append(
            ArraySamples(
                np.concatenate([x for _, x, _ in read] or [np.zeros((0, SIDE, SIDE), dtype=np.uint8)]),
                np.concatenate([y for _, _, y in read] or [np.zeros(0, dtype=np.int64)]),
            )
        )
        writers += [name for name, _, y in read for _ in range(len(y))]
    writer_names, writer_ids = np.unique(writers, return_inverse=True)
    return RawDataset(
        splits[0],
        splits[1],
        CHARACTERS,
        gray=True,
        writer_ids=writer_ids,
        writer_names=tuple(map(str, writer_names)),
    )


def _read(path: Path) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Returns (name, images, labels) of every writer in a file; LEAF's pixels are 0 … 1."""
    try:
        result, content = [], json.loads(path.read_bytes())
        sizes = dict(zip(content["users"], content["num_samples"], strict=True))
        for name, data in content["user_data"].items():
            x = np.asarray(data["x"], dtype=np.float32).reshape(-1, SIDE, SIDE)
            y = np.asarray(data["y"])
            if y.ndim != 1 or (len(y) and y.dtype != np.int64):
                raise ValueError(f"writer {name} has labels that are not a list of integers")
            if not len(x) == len(y) == sizes.pop(name, -1) or not ((x >= 0) & (x <= 1)).all():
                raise ValueError(
                    f"writer {name} has {len(x)} images, {len(y)} labels, or pixels beyond 0 … 1"
                )
            result.append((name, np.rint(x * 255).astype(np.uint8), y.astype(np.int64)))
        if sizes:
            raise ValueError(f"writer {next(iter(sizes))} has no samples")
        return result
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path} is no LEAF file, or a damaged one ({error}): {ADVICE}") from None
