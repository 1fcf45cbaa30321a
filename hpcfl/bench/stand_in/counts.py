"""What the stand-in devices of this process have done."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

NAME = "standin"
MEMORY = 8 * 2**30
"""Bytes of each device."""


NUMBERS = ("kernels", "syncs", "bytes_in", "bytes_out")


@dataclass
class Counts:
    """What the devices of this process have done."""

    kernels: int = 0
    syncs: int = 0
    bytes_in: int = 0
    """Bytes copied from the host."""
    bytes_out: int = 0
    """Bytes copied to the host."""
    waits: Counter[str] = field(default_factory=Counter)
    """Host syncs by the operation that waits."""
    allocated: Counter[int] = field(default_factory=Counter)
    """Bytes in use, by device."""
    peak: Counter[int] = field(default_factory=Counter)
    """Most bytes in use, by device."""

    def wait(self, operation: str) -> None:
        self.syncs += 1
        self.waits[operation] += 1

    def reset_peak(self, device: int) -> None:
        self.peak[device] = self.allocated[device]

    def __add__(self, other: Counts) -> Counts:
        done = {each: getattr(self, each) + getattr(other, each) for each in NUMBERS}
        return Counts(**done, waits=self.waits + other.waits)

    def since(self, earlier: Counts) -> Counts:
        """Returns what was done after an earlier copy of the counts."""
        done = {each: getattr(self, each) - getattr(earlier, each) for each in NUMBERS}
        return Counts(**done, waits=self.waits - earlier.waits)

    def copy(self) -> Counts:
        return Counts(self.kernels, self.syncs, self.bytes_in, self.bytes_out, self.waits.copy())


counts = Counts()


@contextmanager
def counted(found: Counts) -> Iterator[None]:
    """Adds to `found` what the block does."""
    start = counts.copy()
    yield
    vars(found).update(vars(found + counts.since(start)))


_storages: dict[tuple[int, int], list[int]] = {}
"""By device and address: the tensors that use a storage, and its bytes."""


def count_storage(made: Tensor, storage: torch.UntypedStorage, device: int) -> None:
    """Counts the bytes of a storage while a tensor uses it."""
    key, nbytes = (device, storage.data_ptr()), storage.nbytes()
    if nbytes == 0:
        return
    entry = _storages.setdefault(key, [0, nbytes])
    if entry[0] == 0:
        counts.allocated[device] += nbytes
        counts.peak[device] = max(counts.peak[device], counts.allocated[device])
    entry[0] += 1
    weakref.finalize(made, _release, key).atexit = False


def _release(key: tuple[int, int]) -> None:
    entry = _storages[key]
    entry[0] -= 1
    if entry[0] == 0:
        counts.allocated[key[0]] -= entry[1]
        del _storages[key]
