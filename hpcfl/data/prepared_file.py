"""The prepared file: one HDF5 per dataset, images contiguous so that all ranks of a node map one copy."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcfl.data.dataset import Dataset
from hpcfl.errors import BadInput

FORMAT = 1
DIGEST = 16
CHUNK = 1 << 24
"""Bytes per read when a file is verified."""
_VERIFIED: set[tuple[int, int, int, str]] = set()
"""Files that this process has verified: a study reads them once."""


def prepared_path(root: str | Path, name: str) -> Path:
    """Returns where a prepared dataset lies."""
    return Path(root) / f"{name}.h5"


def is_prepared(path: Path) -> bool:
    """Says whether there is a file; where that may not be known, says so."""
    try:
        return path.is_file()
    except OSError as error:
        raise BadInput(f"cannot look for {path}: {error.strerror}") from None


def prepared_names(root: str | Path) -> list[str]:
    """Returns the names of the files in a directory that may be prepared datasets."""
    try:
        return sorted(path.stem for path in Path(root).glob("*.h5") if path.is_file())
    except OSError as error:
        raise BadInput(f"cannot look into {root}: {error.strerror}") from None


class PreparedFileWriter:
    """Writes a prepared file, batch by batch; `complete` adds what is known at the end."""

    def __init__(self, file: h5py.File, count: int, train: int, shape: tuple[int, ...]):
        self.file = file
        self.x = self.file.create_dataset("x", (count, *shape), dtype="u1")
        self.train, self.done = train, 0
        self.digest = hashlib.blake2b(digest_size=DIGEST)
        self.sum_C = np.zeros(shape[2], dtype=np.int64)
        self.squares_C = np.zeros(shape[2], dtype=np.int64)

    def add(self, images_BHWC: np.ndarray) -> None:
        """Appends images; those of the train part count for mean and deviation."""
        self.x[self.done : self.done + len(images_BHWC)] = images_BHWC
        self.digest.update(images_BHWC.tobytes())
        pixels = images_BHWC[: max(0, self.train - self.done)].astype(np.int64)
        self.sum_C += pixels.sum((0, 1, 2))
        self.squares_C += (pixels * pixels).sum((0, 1, 2))
        self.done += len(images_BHWC)

    def complete(
        self,
        y: np.ndarray,
        names: tuple[str, ...],
        writer: np.ndarray | None,
        writers: tuple[str, ...],
        provenance: Mapping[str, Any],
    ) -> None:
        """Adds labels, checksums, statistics and where it all came from."""
        assert self.done == len(self.x) == len(y)
        pixels = self.train * self.x.shape[1] * self.x.shape[2] * 255
        mean_C = self.sum_C / pixels
        std_C = np.sqrt(np.maximum(self.squares_C / (pixels * 255) - mean_C**2, 0))
        attributes = {
            "format": FORMAT,
            "train": self.train,
            "mean": mean_C,
            "std": np.where(std_C > 0, std_C, 1.0),
            "checksum_images": self.digest.hexdigest(),
            "provenance": json.dumps(dict(provenance)),
        }
        self.file.attrs.update(attributes)
        self.file["y"] = y.astype("<i8")
        self.file["names"] = np.array(names, dtype=h5py.string_dtype())
        if writer is not None:
            self.file["writer"] = writer.astype("<i8")
            self.file["writers"] = np.array(writers, dtype=h5py.string_dtype())
        self.file.attrs["checksum"] = _checksum(self.file)


def _checksum(file: h5py.File) -> str:
    """Returns the checksum of the content; images enter by their own. Who made it, and when, does not."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    for name in ("format", "train", "mean", "std", "checksum_images"):
        digest.update(f"{name} {np.asarray(file.attrs[name]).tolist()}\n".encode())
    digest.update(f"x {file['x'].shape} {file['x'].dtype}\n".encode())
    for name in sorted(set(file) - {"x"}):
        values = file[name][()]
        raw = b"\0".join(values) if values.dtype == object else values.tobytes()
        digest.update(f"{name} {values.shape} {len(raw)}\n".encode() + raw)
    return digest.hexdigest()


def open_prepared(path: Path) -> Dataset:
    """Returns the dataset of a prepared file, its images mapped; all but the images is verified."""
    try:
        with open(path, "rb") as stream, h5py.File(path, "r", locking=False) as file:
            if not os.path.samestat(os.fstat(stream.fileno()), os.fstat(file.id.get_vfd_handle())):
                return open_prepared(path)  # another was renamed into its place in between
            if "checksum_images" not in file.attrs:
                raise BadInput(f"{path} is an HDF5 file, but not one that `hpcfl data prepare` made")
            if file.attrs["format"] != FORMAT:
                raise BadInput(
                    f"{path} has format {file.attrs['format']}; this version of hpcfl reads {FORMAT}: "
                    "prepare it again with --fresh"
                )
            images, offset = file["x"], file["x"].id.get_offset()
            if _checksum(file) != file.attrs["checksum"]:
                raise _damaged(path, "its labels or statistics were altered")
            if offset is None or path.stat().st_size < offset + images.size:
                raise _damaged(path, "it is truncated")
            return Dataset(
                # private and writable, so that torch takes it; nobody writes, so pages stay shared
                np.memmap(stream, dtype=np.uint8, mode="c", offset=offset, shape=images.shape),
                file["y"][()],
                tuple(file["names"].asstr()[()]),
                int(file.attrs["train"]),
                str(file.attrs["checksum"]),
                str(file.attrs["checksum_images"]),
                path,
                file.attrs["mean"],
                file.attrs["std"],
                file["writer"][()] if "writer" in file else None,
                json.loads(file.attrs["provenance"]),
            )
    except BadInput:
        raise
    except PermissionError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except OSError as error:
        raise _damaged(path, error.strerror or "not a whole HDF5 file") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        raise _damaged(path, f"a part is missing or wrong: {error}") from None


def verify_images(data: Dataset) -> None:
    """Reads every image and raises BadInput if one was altered; the node has them in memory afterwards."""
    if data.file is None:
        return
    there = os.stat(data.file)
    known = (there.st_dev, there.st_ino, there.st_mtime_ns, data.checksum_images)
    if known in _VERIFIED:
        return
    digest = hashlib.blake2b(digest_size=DIGEST)
    flat = data.x.reshape(-1)
    for start in range(0, len(flat), CHUNK):
        digest.update(flat[start : start + CHUNK].data)
    if data.checksum_images != digest.hexdigest():
        raise _damaged(data.file, "its images were altered")
    _VERIFIED.add(known)


def _damaged(path: Path, how: str) -> BadInput:
    return BadInput(
        f"cannot use {path}: {how}; "
        f"make it again as before, with --fresh: hpcfl data prepare {path.stem} --root {path.parent} …"
    )
