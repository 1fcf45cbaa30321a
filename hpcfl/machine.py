"""Where a run would be: ranks, nodes, cores, memory, devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hpcfl import cores


@dataclass(frozen=True)
class Machine:
    """Where the run would be: ranks are spread over nodes in blocks."""

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


def here(ranks: int, nodes: int, devices: int, memory: float | None, device_memory: float | None) -> Machine:
    """Returns a machine whose nodes are like this one, but for what is given, in GiB."""
    allowed, quota = cores.mine()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shared = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return Machine(
        ranks,
        nodes,
        devices,
        max(1, int(min(len(allowed), quota))),
        int(memory * 2**30) if memory else total,
        int(device_memory * 2**30) if device_memory else None,
        shared.f_blocks * shared.f_frsize if shared else 0,
    )


def private_bytes() -> int:
    """Returns the memory that this process has for itself alone: what each rank needs anew."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 250 * 2**20
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))
