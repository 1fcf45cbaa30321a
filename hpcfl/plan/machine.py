"""The machine that a run is planned for: ranks, nodes, cores, memory, devices."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.runtime import cores
from hpcfl.runtime.arena import RESERVED_BYTES, free_space
from hpcfl.utils import accelerator


@dataclass(frozen=True)
class Machine:
    """A machine whose ranks are spread over its nodes in blocks."""

    ranks: int
    nodes: int
    devices: int
    """GPUs of each node."""
    cores: int
    """Cores of each node."""
    memory: int
    """Bytes of each node."""
    device_memory: int | None
    shared: int
    """Bytes of shared memory of each node that the arena may use."""
    kind: str
    """The type of device that runtime.device = "auto" means."""

    def node(self, rank: int) -> int:
        return rank * self.nodes // self.ranks


def machine_like_here(
    ranks: int | None,
    nodes: int,
    devices: int,
    cores_: int | None,
    memory: float | None,
    device_memory: float | None,
    busy: int = 1,
) -> Machine:
    """Returns a machine whose nodes are like this one, except for given values; memory in GiB.

    Without a number of ranks it has a worker for each core, at most the `busy` ones, and the server.
    """
    allowed, quota = cores.own_cores()
    cores_ = cores_ or max(1, math.floor(min(len(allowed), quota)))
    ranks = ranks or 1 + max(nodes, min(busy, nodes * cores_))
    if nodes > ranks:
        raise BadInput(f"--nodes {nodes}: more than -n {ranks} ranks")
    for option, gib in (("--memory", memory), ("--device-memory", device_memory)):
        if gib is not None and not 0 < gib < 1e9:
            raise BadInput(f"{option} {gib}: must be a number of GiB")
    kind, _ = accelerator.find_accelerators("auto")
    return Machine(
        ranks,
        nodes,
        devices,
        cores_,
        int(memory * 2**30) if memory else _memory(),
        int(device_memory * 2**30) if device_memory else None,
        free_space().shared - RESERVED_BYTES,
        "cuda" if kind == "cpu" else kind,
    )


def _memory() -> int:
    """Returns the bytes of memory of this node, or of the control group of this process if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path("/sys/fs/cgroup", limit).read_text()))
        except (OSError, ValueError):
            continue
    return total


def program_memory(images: bool) -> tuple[int, int]:
    """Returns the bytes of a rank that has only imported the program: private, and shared by all ranks."""
    command = [sys.executable, "-m", "hpcfl.plan.memory_probe", *(["images"] if images else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        private, shared = map(int, done.stdout.split())
    except (subprocess.CalledProcessError, ValueError, OSError):  # no /proc/self/smaps_rollup here
        private, shared = 150 * 2**20, 150 * 2**20
    return private, shared
