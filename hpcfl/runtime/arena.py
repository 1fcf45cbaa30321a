"""The arena: memory that holds the client states of a node and is shared by its ranks.

Three kinds: `shared` (a file in shared memory), `mapped` (a file on the node's own disk) and `private`
(memory of each rank, so that clients are pinned to ranks). The blocks of a file are allocated before anything
is written: a write to shared memory that is full kills the job without a message, and MPI's windows allocate
nothing before they are written to. The name of a file is deleted as soon as all ranks have it open.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from hpcfl.comm.communicator import Communicator
from hpcfl.errors import BadInput
from hpcfl.utils.files import free_bytes

RESERVED_BYTES = 16 * 2**20
"""Bytes that an arena leaves free for other programs."""

KINDS = ("shared", "mapped", "private")
SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True)
class FreeSpace:
    """Free bytes of a host: shared memory (`shared`) and temporary directory (`mapped`)."""

    shared: int
    mapped: int


def free_space() -> FreeSpace:
    """Returns the free bytes of this host."""
    return FreeSpace(free_bytes(SHARED_MEMORY), free_bytes(tempfile.gettempdir()))


def choose_arena(
    setting: str,
    needs: Sequence[tuple[str, int, int]],
    spaces: Mapping[str, FreeSpace],
    failed: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, str]:
    """Returns the first kind of arena that fits on all hosts, and why an earlier kind does not fit.

    `needs` holds (host, node, bytes); pretend nodes of one host share its free space. `failed` has the kinds
    that could not be allocated, and why. All ranks choose the same kind.
    """
    need: dict[str, int] = {}
    for host, _, nbytes in set(needs):
        need[host] = need.get(host, 0) + nbytes
    reason = ""
    for kind in KINDS if setting == "auto" else (setting,):
        if kind == "private":
            return kind, reason
        short = [host for host in need if need[host] + RESERVED_BYTES > getattr(spaces[host], kind)]
        if not short and kind not in failed:
            return kind, reason
        host = short[0] if short else ""
        where = "shared memory" if kind == "shared" else "its temporary directory"
        reason = failed.get(kind) or (
            f"{host} has {getattr(spaces[host], kind):,} bytes free in {where}; clients need {need[host]:,}, "
            f"and {RESERVED_BYTES:,} are left to other programs"
        )
    raise BadInput(f"runtime.arena = {setting!r}: {reason}")


@dataclass(frozen=True)
class Reservation:
    """The kind of arena of a run, why it is not the first choice, and the file of this node, if any."""

    kind: str
    reason: str = ""
    path: str = ""


def reserve_arena(
    comm: Communicator,
    setting: str,
    needs: Sequence[tuple[str, int, int]],
    spaces: Mapping[str, FreeSpace],
    nbytes: int,
    leader: bool,
) -> Reservation:
    """Allocates the arenas of all nodes, `nbytes` on this one, and returns what was chosen. Collective."""
    failed: dict[str, str] = {}
    while True:
        choice = Reservation("private")
        with comm.raise_on_all():
            choice = Reservation(*choose_arena(setting, needs, spaces, failed))
        if choice.kind == "private":
            return choice
        path = problem = ""
        if leader:
            directory = SHARED_MEMORY if choice.kind == "shared" else tempfile.gettempdir()
            try:
                path = _allocate_file(directory, max(nbytes, 1))
            except OSError as error:
                problem = f"{nbytes:,} bytes cannot be allocated in {directory}: {error.strerror}"
        replies = comm.allgather_object((comm.node, path, problem))
        problems = [each for *_, each in replies if each]
        if not problems:
            paths = {node: each for node, each, _ in replies if each}
            return replace(choice, path=paths[comm.node])
        if path:
            os.unlink(path)
        failed[choice.kind] = problems[0]


class Arena:
    """One byte vector (client state) per client of this node."""

    def __init__(self, comm: Communicator, reserved: Reservation, sizes: Mapping[int, int], leader: bool):
        """`sizes` has the bytes of each client of the node, or if private of this rank. Collective."""
        self.kind = reserved.kind
        total = sum(sizes.values())
        if self.kind == "private":
            memory = np.zeros(total, dtype=np.uint8)
        else:
            with open(reserved.path, "r+b") as file:
                mapping = mmap.mmap(file.fileno(), max(total, 1))
            memory = np.frombuffer(mapping, dtype=np.uint8)[:total]
            comm.allgather_object(None)  # a barrier: all ranks have it open
            if leader:
                os.unlink(reserved.path)
        buffer = torch.from_numpy(memory) if total else torch.empty(0, dtype=torch.uint8)
        vectors = buffer.split(list(sizes.values())) if sizes else ()
        self.vectors: dict[int, Tensor] = dict(zip(sizes, vectors, strict=True))


def _allocate_file(directory: str, nbytes: int) -> str:
    """Returns the name of a new file of zeros with allocated blocks; raises OSError if there is no room."""
    handle, name = tempfile.mkstemp(prefix="hpcfl-arena-", dir=directory)
    try:
        os.posix_fallocate(handle, 0, nbytes)
    except OSError:
        os.unlink(name)
        raise
    finally:
        os.close(handle)
    return name
