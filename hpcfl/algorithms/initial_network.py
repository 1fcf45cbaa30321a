"""The networks and blocks of a client before its first round."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network, build_network
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.state import Block
from hpcfl.utils import seeds


def initial_network(plan: RunPlan, i: int, extra: str = "", architecture: str = "") -> Network:
    """Returns a client's network before its first round; its parameters are keyed by client.

    `extra` is the name of a further network that the algorithm declares, with its own architecture.
    """
    name = architecture or plan.clients[i].architecture
    start = f"start {extra}" if extra else "start"
    key = (f"{start} {name}",) if plan.config.models.same_start else (start, i)
    seed_torch(seeds.key(plan.config.seed, *key), torch.device("cpu"))
    return build_network(name, plan.data.shape, *plan.dims)


def initial_block(plan: RunPlan, i: int, block: Block) -> Tensor:
    """Returns a block of a client before its first round; random entries are keyed as its network is."""
    if not block.bound:
        return torch.full(block.shape, block.start, dtype=block.dtype)
    key = (0,) if plan.config.models.same_start else (1, i)
    random = seeds.generator(plan.config.seed, f"start block {block.name}", *key)
    return torch.from_numpy(random.uniform(-block.bound, block.bound, block.shape)).to(block.dtype)
