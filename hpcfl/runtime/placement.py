"""Where everything is: agreed by all ranks before the first round."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hpcfl.comm.communicator import COUNTERS, Communicator
from hpcfl.federation.run_plan import RunPlan
from hpcfl.runtime import cores
from hpcfl.runtime.arena import Arena, choose_arena, free_space
from hpcfl.runtime.scheduling import ClientQueue, CoreLimiter, CostModel, assign_clients, pools
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.step.options import StepOptions

LIMITERS = COUNTERS // 2
"""Counters, from the end, that are gates; pools draw from the others."""


@dataclass(frozen=True)
class Placement:
    """This rank's clients and memory, and what the run as a whole has."""

    roster: ClientQueue
    records: ClientLayouts
    arena: Arena
    placement: str
    why: str
    """Why the arena is not of the first choice."""
    nodes: int
    cores: int

    def words(self) -> dict[str, Any]:
        """Returns what the log keeps of it."""
        return {
            "nodes": self.nodes,
            "cores": self.cores,
            "placement": self.placement,
            "arena": self.arena.kind,
        }


def place_clients(
    link: Communicator, fed: RunPlan, costs: CostModel, device: torch.device, ways: Mapping[str, StepOptions]
) -> Placement:
    """Returns where this rank's clients live; every rank calls it."""
    runtime = fed.config.runtime
    mine = (platform.node(), link.node, device_identity(device), cores.own_cores(), free_space())
    hosts, nodes, devices, allowed, rooms = zip(*link.facts(mine), strict=True)
    places = list(zip(nodes, devices, strict=True))
    with link.agreed():  # a user's network may be missing on one node
        records = ClientLayouts(fed, ways)
    kind, why, pinned = "private", "", runtime.placement == "pinned"
    sizes = [records.layout(i).nbytes for i in range(len(fed.clients))]

    def split(pinned: bool) -> tuple[list[int], list[int]]:
        """Returns each client's pool and node."""
        groups = pools(places, link.workers, pinned)
        pool_of = assign_clients(costs.of_clients().tolist(), groups)
        return pool_of, [groups[number].node for number in pool_of]

    pool_of, node_of = split(pinned)
    need = {node: sum(size for size, at in zip(sizes, node_of, strict=True) if at == node) for node in nodes}
    with link.agreed():
        needs = [(host, node, need[node]) for host, node in zip(hosts, nodes, strict=True)]
        kind, why = choose_arena(runtime.arena, needs, dict(zip(hosts, rooms, strict=True)))
    if kind == "private" and not pinned:
        pinned = True
        pool_of, node_of = split(pinned)
    node = [rank for rank in link.workers if nodes[rank] == link.node]
    gate = cores.core_limit(allowed, link.rank, node, runtime.threads) if link.rank in node else None
    if gate and gate[0] >= LIMITERS:  # so many kinds of binding that each has few ranks
        gate = None
    roster = ClientQueue(
        pool_of,
        pools(places, link.workers, pinned),
        link.rank,
        link,
        CoreLimiter(link, COUNTERS - 1 - gate[0], gate[1]) if gate else None,
    )
    here = roster.clients if kind == "private" else [i for i, node in enumerate(node_of) if node == link.node]
    leader = nodes.index(link.node) == link.rank
    arena = Arena(link, kind, {i: sizes[i] for i in here}, leader)
    total = cores.total_cores(zip(hosts, allowed, strict=True))
    return Placement(roster, records, arena, "pinned" if pinned else "pool", why, len(set(nodes)), total)


def device_identity(device: torch.device) -> str:
    """Returns what tells one device of a node from another: a GPU's UUID, or `cpu`."""
    if device.type != "cuda":
        return "cpu"
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device))
