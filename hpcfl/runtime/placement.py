"""Decides, alike on all ranks before the first round, which rank and which memory each client gets."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcfl.comm.communicator import COUNTERS, Communicator
from hpcfl.config.schema import RuntimeConfig
from hpcfl.runtime import cores
from hpcfl.runtime.arena import Arena, free_space, reserve_arena
from hpcfl.runtime.scheduling import ClientQueue, CoreLimiter, CostModel, assign_clients, pools
from hpcfl.utils import accelerator

LIMITERS = COUNTERS // 2
"""Number of counters, from the end, for core limiters; client queues use the others."""


@dataclass(frozen=True)
class Placement:
    """Client queue and arena of this rank, and the nodes and cores of the whole run."""

    queue: ClientQueue
    arena: Arena
    placement: str
    """`pool` or `pinned`."""
    fallback_reason: str
    """Why the arena is not of the first kind; empty if it is."""
    nodes: int
    cores: int
    sharing: int
    """Number of workers that train on the device of this rank, whatever their pools are."""
    float64_remark: str
    """What is computed elsewhere because the device has no float64; empty: nothing."""

    def log_attributes(self) -> dict[str, Any]:
        """Returns the attributes that are written to the log."""
        return {
            "nodes": self.nodes,
            "cores": self.cores,
            "placement": self.placement,
            "arena": self.arena.kind,
        }


def place_clients(
    comm: Communicator, runtime: RuntimeConfig, costs: CostModel, device: torch.device, sizes: Sequence[int]
) -> Placement:
    """Returns the placement of this rank; collective. `sizes` has the bytes of every client."""
    own = (platform.node(), comm.node, accelerator.identity(device), cores.own_cores(), free_space())
    hosts, nodes, identities, cores_of, spaces = zip(*comm.allgather_object(own), strict=True)
    devices = list(zip(nodes, identities, strict=True))
    pinned, leader = runtime.placement == "pinned", nodes.index(comm.node) == comm.rank

    def assign(pinned: bool) -> tuple[list[int], list[int]]:
        """Returns each client's pool and node."""
        groups = pools(devices, comm.workers, pinned)
        pool_of = assign_clients(costs.of_clients().tolist(), groups)
        return pool_of, [groups[number].node for number in pool_of]

    pool_of, node_of = assign(pinned)
    need = dict.fromkeys(nodes, 0)
    for size, node in zip(sizes, node_of, strict=True):
        need[node] += size
    needs = [(host, node, need[node]) for host, node in zip(hosts, nodes, strict=True)]
    space_of = dict(zip(hosts, spaces, strict=True))
    reserved = reserve_arena(comm, runtime.arena, needs, space_of, need[comm.node], leader)
    if reserved.kind == "private" and not pinned:
        pinned = True
        pool_of, node_of = assign(pinned)
    workers = [rank for rank in comm.workers if nodes[rank] == comm.node]
    limit = cores.core_limit(cores_of, comm.rank, workers, runtime.threads) if comm.rank in workers else None
    if limit and limit[0] >= LIMITERS:  # no counter left; so many affinities have few ranks each
        limit = None
    queue = ClientQueue(
        pool_of,
        pools(devices, comm.workers, pinned),
        comm.rank,
        comm,
        CoreLimiter(comm, COUNTERS - 1 - limit[0], limit[1]) if limit else None,
    )
    clients = queue.clients
    if reserved.kind != "private":
        clients = [i for i, node in enumerate(node_of) if node == comm.node]
    arena = Arena(comm, reserved, {i: sizes[i] for i in clients}, leader)
    total = cores.total_cores(zip(hosts, cores_of, strict=True))
    remark = ""
    if not accelerator.has_float64(device):
        remark = f"{device.type} has no float64: the server, and clients' sums in float64, are on the CPU"
    kind = "pinned" if pinned else "pool"
    used = list(zip(hosts, identities, strict=True))  # nodes of runtime.pretend_nodes have the same devices
    sharing = sum(used[rank] == used[comm.rank] for rank in comm.workers)
    return Placement(queue, arena, kind, reserved.reason, len(set(nodes)), total, sharing, remark)
