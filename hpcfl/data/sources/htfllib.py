"""The files of HtFLlib and PFLlib: train/I.npz and test/I.npz have the samples of client I, pickled."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from hpcfl.data.npz import HEADERS
from hpcfl.data.sources.arrays import array_dataset, samples_of
from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset
from hpcfl.errors import BadInput

PREFIX = "htfllib:"
PARTS = ("train", "test")
ARRAY_NAMES = ("_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer")
"""What pickles of numpy arrays name."""


class _ArrayUnpickler(pickle.Unpickler):
    """Reads numbers, containers and numpy arrays; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in ARRAY_NAMES:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise BadInput(f"its pickle asks for {module}.{name}, which is not an array")


def htfllib_directory(files: SourceFiles, directory: Path, allow_pickle: bool) -> RawDataset:
    """Opens a dataset of HtFLlib with its split: all clients' train samples, then all their test samples."""
    if not allow_pickle:
        raise BadInput(
            f"--source {PREFIX}{directory}: these files are Python pickles; add --allow-pickle to read them "
            "(only numbers, containers and numpy arrays are taken from them)"
        )
    clients = _clients(directory)
    files.used.append(str(directory.resolve()))
    read = {part: [_client(directory / part / f"{i}.npz") for i in range(clients)] for part in PARTS}
    arrays: dict[str, np.ndarray] = {}
    split: list[list[np.ndarray]] = [[] for _ in range(clients)]
    start = 0
    for part, suffix in zip(PARTS, ("", "_test"), strict=True):
        for key, values in zip(("x", "y"), zip(*read[part], strict=True), strict=True):
            arrays[f"{key}{suffix}"] = _join(directory / part, values)
        for client, (_, y) in enumerate(read[part]):
            split[client].append(np.arange(start, start + len(y)))
            start += len(y)
    return replace(array_dataset(str(directory), arrays), split=[tuple(parts) for parts in split])


def _clients(directory: Path) -> int:
    """Returns the number of clients; raises BadInput unless all have a train and a test file."""
    found = {part: {path.stem for path in (directory / part).glob("*.npz")} for part in PARTS}
    clients = len(found["train"])
    if clients == 0 or any(names != {str(i) for i in range(clients)} for names in found.values()):
        raise BadInput(
            f"{directory} must have train/0.npz, train/1.npz, … and as many files in test; it has "
            + " and ".join(f"{len(names)} in {part}" for part, names in found.items())
        )
    return clients


def _client(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the samples and labels of a file."""
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            zipfile.ZipFile(path) as archive,
            archive.open("data.npy") as file,
        ):
            data = _unpickle(file)
        if hasattr(data, "tolist"):
            data = data.tolist()
        x, y = data["x"], np.asarray(data["y"])
        return _samples(x), y.astype(np.int64) if y.dtype.kind == "f" else y
    except BadInput as problem:
        raise BadInput(f"{path}: {problem}") from None
    except Exception as error:  # a damaged pickle raises nearly anything
        raise BadInput(
            f"{path} is not a file of HtFLlib, an .npz with a pickled dict of x and y "
            f"({type(error).__name__}: {error})"
        ) from None


def _unpickle(file: IO[bytes]) -> Any:
    shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    if not dtype.hasobject or shape != ():
        raise BadInput("`data` is not a pickled dictionary")
    return _ArrayUnpickler(file).load()


def _samples(x: Any) -> np.ndarray:
    """Returns samples as an array; of texts, which are pairs (tokens, length), the tokens."""
    if isinstance(x, list | tuple) and all(
        isinstance(each, list | tuple) and list(map(np.ndim, each)) == [1, 0] for each in x
    ):
        x = [tokens for tokens, _ in x]
    return samples_of(np.asarray(x), "x")


def _join(directory: Path, values: tuple[np.ndarray, ...]) -> np.ndarray:
    """Returns the arrays of all clients one after the other."""
    kinds = {(each.dtype.kind, each.shape[1:]) for each in values if len(each)}
    if len(kinds) > 1:
        raise BadInput(f"{directory}: clients have samples of different types or shapes")
    return np.concatenate([each for each in values if len(each)] or [values[0]])
