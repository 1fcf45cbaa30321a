"""Where everything is: agreed by all ranks before the first round."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hpcfl.comm.communicator import COUNTERS, Communicator
from hpcfl.config.schema import RuntimeConfig
from hpcfl.runtime import cores
from hpcfl.runtime.arena import Arena, choose_arena, free_space
from hpcfl.runtime.scheduling import ClientQueue, CoreLimiter, CostModel, assign_clients, pools

LIMITERS = COUNTERS // 2
"""Counters, from the end, that core limiters use; pools draw from the others."""


@dataclass(frozen=True)
class Placement:
    """This rank's clients and memory, and what the run as a whole has."""

    queue: ClientQueue
    arena: Arena
    placement: str
    why: str
    """Why the arena is not of the first choice."""
    nodes: int
    cores: int

    def log_attributes(self) -> dict[str, Any]:
        """Returns the attributes that the log keeps of it."""
        return {
            "nodes": self.nodes,
            "cores": self.cores,
            "placement": self.placement,
            "arena": self.arena.kind,
        }


def place_clients(
    comm: Communicator, runtime: RuntimeConfig, costs: CostModel, device: torch.device, sizes: Sequence[int]
) -> Placement:
    """Returns where this rank's clients live; every rank calls it. `sizes` has the bytes of every client."""
    mine = (platform.node(), comm.node, device_identity(device), cores.own_cores(), free_space())
    hosts, nodes, devices, allowed, spaces = zip(*comm.allgather_object(mine), strict=True)
    places = list(zip(nodes, devices, strict=True))
    kind, why, pinned = "private", "", runtime.placement == "pinned"

    def split(pinned: bool) -> tuple[list[int], list[int]]:
        """Returns each client's pool and node."""
        groups = pools(places, comm.workers, pinned)
        pool_of = assign_clients(costs.of_clients().tolist(), groups)
        return pool_of, [groups[number].node for number in pool_of]

    pool_of, node_of = split(pinned)
    need = {node: sum(size for size, at in zip(sizes, node_of, strict=True) if at == node) for node in nodes}
    with comm.raise_on_all():
        needs = [(host, node, need[node]) for host, node in zip(hosts, nodes, strict=True)]
        kind, why = choose_arena(runtime.arena, needs, dict(zip(hosts, spaces, strict=True)))
    if kind == "private" and not pinned:
        pinned = True
        pool_of, node_of = split(pinned)
    node = [rank for rank in comm.workers if nodes[rank] == comm.node]
    limit = cores.core_limit(allowed, comm.rank, node, runtime.threads) if comm.rank in node else None
    if limit and limit[0] >= LIMITERS:  # so many kinds of binding that each has few ranks
        limit = None
    queue = ClientQueue(
        pool_of,
        pools(places, comm.workers, pinned),
        comm.rank,
        comm,
        CoreLimiter(comm, COUNTERS - 1 - limit[0], limit[1]) if limit else None,
    )
    here = queue.clients if kind == "private" else [i for i, node in enumerate(node_of) if node == comm.node]
    leader = nodes.index(comm.node) == comm.rank
    arena = Arena(comm, kind, {i: sizes[i] for i in here}, leader)
    total = cores.total_cores(zip(hosts, allowed, strict=True))
    return Placement(queue, arena, "pinned" if pinned else "pool", why, len(set(nodes)), total)


def device_identity(device: torch.device) -> str:
    """Returns what tells one device of a node from another: a GPU's UUID, or `cpu`."""
    if device.type != "cuda":
        return "cpu"
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device))
