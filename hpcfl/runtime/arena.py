"""The arena: memory that holds the client states of a node and is shared by its ranks.

Three kinds: `shared` (an MPI window), `mapped` (a file on the node's own disk, deleted as soon as all ranks
have it open) and `private` (memory of each rank, so that clients are pinned to ranks).
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
from hpcfl.utils.files import free_bytes

RESERVED_BYTES = 16 * 2**20
"""Bytes that an arena leaves free for other programs."""

KINDS = ("shared", "mapped", "private")


@dataclass(frozen=True)
class FreeSpace:
    """Free bytes of a host: shared memory (`shared`) and temporary directory (`mapped`)."""

    shared: int
    mapped: int


def free_space() -> FreeSpace:
    """Returns the free bytes of this host."""
    return FreeSpace(free_bytes("/dev/shm"), free_bytes(tempfile.gettempdir()))


def choose_arena(
    setting: str, needs: Sequence[tuple[str, int, int]], spaces: Mapping[str, FreeSpace]
) -> tuple[str, str]:
    """Returns the first kind of arena that fits on all hosts, and why an earlier kind does not fit.

    `needs` holds (host, node, bytes); pretend nodes of one host share its free space. All ranks choose the
    same kind before allocating, because a write beyond the free space kills the job without a message.
    """
    need: dict[str, int] = {}
    for host, _, nbytes in set(needs):
        need[host] = need.get(host, 0) + nbytes
    reason = ""
    for kind in KINDS if setting == "auto" else (setting,):
        if kind == "private":
            return kind, reason
        short = [host for host in need if need[host] + RESERVED_BYTES > getattr(spaces[host], kind)]
        if not short:
            return kind, reason
        host = short[0]
        where, free = "shared memory" if kind == "shared" else "its temporary directory", spaces[host]
        reason = f"{host} has {getattr(free, kind):,} bytes free in {where}, clients need {need[host]:,}"
    raise BadInput(f"runtime.arena = {setting!r}: {reason}")


class Arena:
    """One byte vector (client state) per client of this node."""

    def __init__(self, comm: Communicator, kind: str, sizes: Mapping[int, int], leader: bool):
        """`sizes` has the bytes of each client of the node, or if private of this rank."""
        self.kind = kind
        total = sum(sizes.values())
        if kind == "shared":
            memory = comm.allocate_shared(total)
        elif kind == "mapped":
            memory = _map_file(comm, total, leader)
        else:
            memory = np.zeros(total, dtype=np.uint8)
        buffer = torch.from_numpy(memory) if total else torch.empty(0, dtype=torch.uint8)
        vectors = buffer.split(list(sizes.values())) if sizes else ()
        self.vectors: dict[int, Tensor] = dict(zip(sizes, vectors, strict=True))


def _map_file(comm: Communicator, nbytes: int, leader: bool) -> np.ndarray:
    """Returns a new file mapped by every rank of the node; its name is then deleted."""
    name = ""
    with comm.raise_on_all():
        if leader:
            name = _allocate_file(max(nbytes, 1))
    names = {node: path for node, path in comm.allgather_object((comm.node, name)) if path}
    with open(names[comm.node], "r+b") as file:
        mapping = mmap.mmap(file.fileno(), max(nbytes, 1))
    comm.allgather_object(None)  # a barrier: all ranks have it open
    if leader:
        os.unlink(name)
    return np.frombuffer(mapping, dtype=np.uint8)[:nbytes]


def _allocate_file(nbytes: int) -> str:
    """Returns the name of a new file whose blocks are allocated; raises BadInput if the disk is full."""
    handle, name = tempfile.mkstemp(prefix="hpcfl-arena-")
    try:
        os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        os.unlink(name)
        raise BadInput(f"runtime.arena: cannot keep {nbytes:,} bytes in {name}: {error.strerror}") from None
    finally:
        os.close(handle)
    return name
