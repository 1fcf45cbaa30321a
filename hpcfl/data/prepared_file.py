"""The prepared file: one HDF5 file per dataset, with contiguous samples that ranks of a node memory-map."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcfl.data.channel_statistics import ArrayStatistics, ImageStatistics
from hpcfl.data.dataset import Dataset
from hpcfl.errors import BadInput
from hpcfl.utils.hdf5_file import open_hdf5

FORMATS = {"|u1": 1, "<f4": 2, "<i4": 2}
"""Format of the file by the type of its samples: images, or other data."""
DIGEST_BYTES = 16
CHUNK = 1 << 24
"""Bytes per read while images are verified."""
_VERIFIED: set[tuple[int, int, int, str]] = set()
"""Files that this process has verified already, so that a study verifies each file once."""


def prepared_path(root: str | Path, name: str) -> Path:
    """Returns the path of a prepared dataset."""
    return Path(root) / f"{name}.h5"


def is_prepared(path: Path) -> bool:
    """Returns whether the file exists; raises BadInput if that cannot be checked."""
    try:
        return path.is_file()
    except OSError as error:
        raise BadInput(f"cannot look for {path}: {error.strerror}") from None


def prepared_names(root: str | Path) -> list[str]:
    """Returns the names of the datasets in a directory: of all its .h5 files."""
    try:
        return sorted(path.stem for path in Path(root).glob("*.h5") if path.is_file())
    except OSError as error:
        raise BadInput(f"cannot look into {root}: {error.strerror}") from None


class PreparedFileWriter:
    """Writes a prepared file: samples batch by batch with `add`, all else at the end with `complete`."""

    def __init__(self, file: h5py.File, count: int, num_train: int, first: np.ndarray):
        """`first` is the first sample, whose shape and type all have."""
        self.file = file
        self.x = self.file.create_dataset("x", (count, *first.shape), dtype=first.dtype.newbyteorder("<"))
        self.format = FORMATS[self.x.dtype.str]
        self.num_train, self.done = num_train, 0
        self.digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.statistics = (
            ImageStatistics(first.shape[2]) if self.format == 1 else ArrayStatistics(first.shape[0])
        )

    def add(self, samples: np.ndarray) -> None:
        """Appends samples; train samples count for the mean and the standard deviation."""
        self.x[self.done : self.done + len(samples)] = samples
        self.digest.update(samples.tobytes())
        self.statistics.add(samples[: max(0, self.num_train - self.done)])
        self.done += len(samples)

    def complete(
        self,
        y: np.ndarray,
        class_names: tuple[str, ...],
        writer_ids: np.ndarray | None,
        writer_names: tuple[str, ...],
        provenance: Mapping[str, Any],
    ) -> str:
        """Adds labels, statistics, provenance and checksums; returns the checksum of the content."""
        assert self.done == len(self.x) == len(y)
        attributes: dict[str, Any] = {
            "format": self.format,
            "train": self.num_train,
            "checksum_images": self.digest.hexdigest(),
        }
        arrays = {"y": y.astype("<i8"), "names": _text_array(class_names)}
        statistics = {"mean": self.statistics.mean_C, "std": self.statistics.std_C}
        if self.format == 1:
            attributes |= statistics
        else:
            arrays |= statistics  # an attribute has room for 8000 numbers, a vector may have more
        if writer_ids is not None:
            arrays |= {"writer": writer_ids.astype("<i8"), "writers": _text_array(writer_names)}
        checksum = _checksum(attributes, self.x, arrays)  # of what is in memory, not of what reached the disk
        self.file.attrs.update(attributes, checksum=checksum, provenance=json.dumps(dict(provenance)))
        for name, values in arrays.items():
            self.file[name] = values
        return checksum


def _text_array(names: tuple[str, ...]) -> np.ndarray:
    """Returns names as they are read from the file: as bytes."""
    return np.array([name.encode() for name in names], dtype=h5py.string_dtype())


def _checksum(attributes: Mapping[str, Any], images: h5py.Dataset, arrays: Mapping[str, np.ndarray]) -> str:
    """Returns the checksum of the content, with images by their own checksum and without the provenance."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name in ("format", "train", "mean", "std", "checksum_images"):
        if name not in attributes:
            continue
        digest.update(f"{name} {np.asarray(attributes[name]).tolist()}\n".encode())
    digest.update(f"x {images.shape} {images.dtype}\n".encode())
    for name, values in sorted(arrays.items()):
        raw = b"\0".join(values) if values.dtype == object else values.tobytes()
        digest.update(f"{name} {values.shape} {len(raw)}\n".encode() + raw)
    return digest.hexdigest()


def image_bytes(images: h5py.Dataset) -> tuple[int, int]:
    """Returns where in the file the images start and end."""
    offset = images.id.get_offset()
    if offset is None:
        raise ValueError("the images are not in one piece")
    return offset, offset + images.nbytes


def check_written(path: Path, checksum: str) -> None:
    """Reads a new file back; raises OSError unless it has the content with this checksum."""
    try:
        data = open_prepared(path)
        verify_images(data)
        is_same = data.checksum == checksum
    except BadInput:
        is_same = False
    if not is_same:
        raise OSError(errno.EIO, "what was written is not what is read back", str(path))


def open_prepared(path: Path) -> Dataset:
    """Returns the dataset of a prepared file, images as a memory map; verifies all but the images."""
    try:
        with open_hdf5(path) as file:
            if "checksum_images" not in file.attrs:
                raise BadInput(f"{path} is an HDF5 file, but not one that `hpcfl data prepare` made")
            known = sorted({*FORMATS.values()})
            if file.attrs["format"] not in known:
                raise BadInput(
                    f"{path} has format {file.attrs['format']}; this version of hpcfl reads "
                    f"{' and '.join(map(str, known))}: prepare it again with --fresh"
                )
            images = file["x"]
            offset, stop = image_bytes(images)
            arrays = {name: file[name][()] for name in file if name != "x"}
            if _checksum(file.attrs, images, arrays) != file.attrs["checksum"]:
                raise _damaged(path, "its labels or statistics were altered")
            handle = file.id.get_vfd_handle()
            if FORMATS[images.dtype.str] != file.attrs["format"] or os.fstat(handle).st_size < stop:
                raise _damaged(path, "it is truncated")
            return Dataset(
                # copy-on-write, because torch wants writable memory; nothing writes, so pages stay shared
                np.memmap(
                    f"/proc/self/fd/{handle}", dtype=images.dtype, mode="c", offset=offset, shape=images.shape
                ),
                arrays["y"],
                tuple(file["names"].asstr()[()]),
                int(file.attrs["train"]),
                str(file.attrs["checksum"]),
                str(file.attrs["checksum_images"]),
                path,
                arrays["mean"] if "mean" in arrays else file.attrs["mean"],
                arrays["std"] if "std" in arrays else file.attrs["std"],
                arrays.get("writer"),
                dict(json.loads(file.attrs["provenance"])),
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
    """Reads all images and raises BadInput if any was altered; leaves them in the node's page cache."""
    if data.file is None:
        return
    status = os.stat(data.file)
    file_key = (status.st_dev, status.st_ino, status.st_mtime_ns, data.checksum_images)
    if file_key in _VERIFIED:
        return
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    flat = data.x.reshape(-1)
    for start in range(0, len(flat), CHUNK):
        digest.update(flat[start : start + CHUNK].data)
    if data.checksum_images != digest.hexdigest():
        raise _damaged(data.file, "its images were altered")
    _VERIFIED.add(file_key)


def _damaged(path: Path, reason: str) -> BadInput:
    name, root = shlex.quote(path.stem), shlex.quote(str(path.parent))
    return BadInput(
        f"cannot use {path}: {reason}; "
        f"make it again as before, with --fresh: hpcfl data prepare {name} --root {root} …"
    )
