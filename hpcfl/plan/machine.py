"""Where a run would be: ranks, nodes, cores, memory, devices."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.runtime import cores
from hpcfl.runtime.arena import SPARE, free_space


@dataclass(frozen=True)
class Machine:
    """Ranks are spread over nodes in blocks."""

    ranks: int
    nodes: int
    devices: int
    """GPUs of each node."""
    cores: int
    """Of each node."""
    memory: int
    """Bytes of each node."""
    device_memory: int | None
    shared: int
    """Bytes of each node's shared memory, for the arena."""

    def node(self, rank: int) -> int:
        return rank * self.nodes // self.ranks


def machine_like_here(
    ranks: int,
    nodes: int,
    devices: int,
    cores_: int | None,
    memory: float | None,
    device_memory: float | None,
) -> Machine:
    """Returns a machine whose nodes are like this one, but for what is given; memory in GiB."""
    if nodes > ranks:
        raise BadInput(f"--nodes {nodes}: more than -n {ranks} ranks")
    for option, gib in (("--memory", memory), ("--device-memory", device_memory)):
        if gib is not None and not 0 < gib < 1e9:
            raise BadInput(f"{option} {gib}: must be a number of GiB")
    allowed, quota = cores.own_cores()
    return Machine(
        ranks,
        nodes,
        devices,
        cores_ or max(1, math.floor(min(len(allowed), quota))),
        int(memory * 2**30) if memory else _memory(),
        int(device_memory * 2**30) if device_memory else None,
        free_space().shared - SPARE,
    )


def _memory() -> int:
    """Returns the bytes that this node, or the control group of this process, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path("/sys/fs/cgroup", limit).read_text()))
        except (OSError, ValueError):
            continue
    return total


def program_memory(images: bool) -> tuple[int, int]:
    """Returns what a rank needs before it has done anything: bytes of its own, and those all ranks share."""
    command = [sys.executable, "-m", "hpcfl.plan.memory_probe", *(["images"] if images else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        own, shared = map(int, done.stdout.split())
    except (subprocess.CalledProcessError, ValueError, OSError):  # a system without this file
        own, shared = 150 * 2**20, 150 * 2**20
    return own, shared


def format_gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.2f} GiB"
