"""The states of a node's clients, in memory that all its ranks share.

Three kinds: `shared` (an MPI window), `mapped` (a file on the node's own disk, deleted as soon as all ranks
have it open) and `private` (each rank alone, so that clients are pinned to ranks).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.comm.communicator import Communicator
from hpcfl.errors import BadInput

SPARE = 16 * 2**20
"""Bytes that are left free for everybody else."""

KINDS = ("shared", "mapped", "private")


@dataclass(frozen=True)
class FreeSpace:
    """Free bytes of a host's shared memory, and of its temporary directory."""

    shared: int
    mapped: int


def free_space() -> FreeSpace:
    return FreeSpace(_free("/dev/shm"), _free(tempfile.gettempdir()))


def choose_arena(
    setting: str, needs: Sequence[tuple[str, int, int]], spaces: Mapping[str, FreeSpace]
) -> tuple[str, str]:
    """Returns the kind of arena for a run, and why it is not the first choice.

    `needs` holds (host, node, bytes); pretend nodes of one host share its free space. All ranks decide
    alike, because one rank that fails to write would take the job down without a word.
    """
    need: dict[str, int] = {}
    for host, _, nbytes in set(needs):
        need[host] = need.get(host, 0) + nbytes
    why = ""
    for kind in KINDS if setting == "auto" else (setting,):
        if kind == "private":
            return kind, why
        short = [host for host in need if need[host] + SPARE > getattr(spaces[host], kind)]
        if not short:
            return kind, why
        host = short[0]
        place = "shared memory" if kind == "shared" else "its temporary directory"
        why = f"{host} has {getattr(spaces[host], kind):,} bytes free in {place}, clients need {need[host]:,}"
    raise BadInput(f"runtime.arena = {setting!r}: {why}")


class Arena:
    """One byte vector per client of this node."""

    def __init__(self, comm: Communicator, kind: str, sizes: Mapping[int, int], leader: bool):
        """`sizes` gives the bytes of each client: all of the node's, or this rank's own where private."""
        self.kind = kind
        total = sum(sizes.values())
        if kind == "shared":
            memory = comm.allocate_shared(total)
        elif kind == "mapped":
            memory = _map_file(comm, total, leader)
        else:
            memory = np.zeros(total, dtype=np.uint8)
        whole = torch.from_numpy(memory) if total else torch.empty(0, dtype=torch.uint8)
        parts = whole.split(list(sizes.values())) if sizes else ()
        self.vectors: dict[int, Tensor] = dict(zip(sizes, parts, strict=True))


def _map_file(comm: Communicator, nbytes: int, leader: bool) -> np.ndarray:
    """Returns a mapping of a new file that every rank of the node opens and nobody sees afterwards."""
    name = ""
    with comm.raise_on_all():
        if leader:
            name = _reserved_file(max(nbytes, 1))
    names = {node: path for node, path in comm.allgather_object((comm.node, name)) if path}
    with open(names[comm.node], "r+b") as file:
        mapping = mmap.mmap(file.fileno(), max(nbytes, 1))
    comm.allgather_object(None)  # all have it open
    if leader:
        os.unlink(name)
    return np.frombuffer(mapping, dtype=np.uint8)[:nbytes]


def _reserved_file(nbytes: int) -> str:
    """Returns the name of a new file whose bytes are on disk, or leaves nothing."""
    handle, name = tempfile.mkstemp(prefix="hpcfl-arena-")
    try:
        os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        os.unlink(name)
        raise BadInput(f"runtime.arena: cannot keep {nbytes:,} bytes in {name}: {error.strerror}") from None
    finally:
        os.close(handle)
    return name


def _free(path: str) -> int:
    """Returns the bytes that may still be written there."""
    try:
        there = os.statvfs(path)
    except OSError:
        return 0
    return there.f_bavail * there.f_frsize
