"""Checks that an HDF5 file is one that hpcfl could have written and can be read; also runs as a program.

HDF5 can crash, spin or allocate without bounds on a damaged file. So a file without a digest is first read by
this program, in a process of its own with limits on CPU time and memory: `python hdf5_check.py FILE`. It
imports nothing from hpcfl, so that it runs by its path.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from collections.abc import Iterator

import h5py

CPU_SECONDS = 2
"""CPU time of the program besides that of its imports; it needs some hundredths."""
SPARE_BYTES = 1 << 28
"""Memory that it may use, besides what it has after its imports and twice the size of the file."""
READ_BYTES = 1 << 26
"""Datasets up to this size are read; of larger ones in one piece only the place in the file is checked."""
STRINGS = 64
"""Strings per read."""
REFUSED = 3
"""Exit code of the program if the reason is on stdout; all others but 0 mean that HDF5 failed."""


def check_structure(file: h5py.File, size: int) -> None:
    """Raises ValueError if the file refers to other files, or declares more data than its `size` in bytes."""
    left = size
    for dataset in datasets(file):
        plist, dtype = dataset.id.get_create_plist(), dataset.dtype
        if plist.get_layout() == h5py.h5d.VIRTUAL or plist.get_external_count():
            raise ValueError(f"{dataset.name} is stored in other files")
        is_string = h5py.check_string_dtype(dtype) is not None
        if dataset.shape is None or not (is_string or dtype.kind in "biuf"):
            raise ValueError(f"{dataset.name} holds neither numbers nor strings")
        left -= math.prod(dataset.shape) * dtype.itemsize
        if left >= 0 and is_string and dtype.kind == "O":
            left -= _string_bytes(dataset, left)
        if left < 0:
            raise ValueError(f"{dataset.name} and those before it declare more data than the file has")


def datasets(group: h5py.Group) -> Iterator[h5py.Dataset]:
    """Yields the datasets of a file and of its groups; raises ValueError if it has anything else."""
    for name in group:
        if group.id.links.get_info(os.fsencode(name)).type != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{name} is a link")
        item = group[name]
        if isinstance(item, h5py.Dataset):
            yield item
        elif isinstance(item, h5py.Group) and isinstance(group, h5py.File):
            yield from datasets(item)
        else:
            raise ValueError(f"{name} is neither a dataset nor a group of datasets")


def _string_bytes(dataset: h5py.Dataset, limit: int) -> int:
    """Returns the bytes of all strings, read a few at a time: many may refer to the same bytes.

    Stops when they are more than `limit`.
    """
    if dataset.ndim != 1:
        raise ValueError(f"{dataset.name} is not a list of strings")
    total = 0
    for start in range(0, len(dataset), STRINGS):
        total += sum(map(len, dataset[start : start + STRINGS]))
        if total > limit:
            break
    return total


def _read_all(path: str) -> None:
    """Reads attributes and datasets of a file, within limits."""
    size = os.stat(path).st_size
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (memory + 2 * size + SPARE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + CPU_SECONDS,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with h5py.File(path, "r", locking=False) as file:
        check_structure(file, size)
        dict(file.attrs)
        for dataset in datasets(file):
            dict(dataset.attrs)
            offset = dataset.id.get_offset()
            if offset is None or dataset.nbytes <= READ_BYTES:
                dataset[()]
            elif offset + dataset.nbytes > size:
                raise ValueError(f"{dataset.name} is truncated")


if __name__ == "__main__":
    try:
        _read_all(sys.argv[1])
    except ValueError as error:
        print(error)
        sys.exit(REFUSED)
