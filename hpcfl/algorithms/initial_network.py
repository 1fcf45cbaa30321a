"""The networks and blocks of a client before its first round."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network, build_network
from hpcfl.models.registry import split_name
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.state import Block, copy_into
from hpcfl.utils import seeds


def write_initial_state(
    plan: RunPlan,
    layouts: ClientLayouts,
    i: int,
    state: Tensor,
    pretrained: Mapping[str, Mapping[str, Tensor]] = {},  # nobody changes it
) -> None:
    """Writes the state of a client before its first round, as bytes."""
    architecture = plan.clients[i].architecture
    network = initial_network(plan, i, pretrained=pretrained)
    state.zero_()
    blocks = layouts.state(i).views(state)
    copy_into(blocks, network)
    for block in layouts.declared.blocks(architecture):
        if block.kept:
            blocks[block.name].copy_(initial_block(plan, i, block))
    for name, extra in layouts.declared.networks(architecture).items():
        if extra.kept:
            other = initial_network(plan, i, name, extra.architecture)
            copy_into({key.removeprefix(f"{name}."): block for key, block in blocks.items()}, other)


def initial_network(
    plan: RunPlan,
    i: int,
    extra: str = "",
    architecture: str = "",
    pretrained: Mapping[str, Mapping[str, Tensor]] = {},  # nobody changes it
) -> Network:
    """Returns a client's network before its first round; its parameters are keyed by client.

    `extra` is the name of a further network that the algorithm declares, with its own architecture.
    `pretrained` are the weights of extractors, by name, that replace random ones.
    """
    name = architecture or plan.clients[i].architecture
    start = f"start {extra}" if extra else "start"
    key = (f"{start} {name}",) if plan.config.models.same_start else (start, i)
    seed_torch(seeds.key(plan.config.seed, *key), torch.device("cpu"))
    network = build_network(name, plan.data.shape, *plan.dims)
    if weights := pretrained.get(split_name(name)[0]):
        network.extractor.load_state_dict(weights)
    return network


def initial_block(plan: RunPlan, i: int, block: Block) -> Tensor:
    """Returns a block of a client before its first round; random entries are keyed as its network is."""
    if not block.bound:
        return torch.full(block.shape, block.start, dtype=block.dtype)
    key = (0,) if plan.config.models.same_start else (1, i)
    random = seeds.generator(plan.config.seed, f"start block {block.name}", *key)
    return torch.from_numpy(random.uniform(-block.bound, block.bound, block.shape)).to(block.dtype)
