"""The records of this node's clients, as they lie in the arena."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from hpcfl.algorithms.initial_network import initial_block, initial_network
from hpcfl.federation.run_plan import RunPlan
from hpcfl.runtime.arena import Arena
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.state import Layout, copy_into


class ClientRecords:
    """Reads and writes clients in the arena: their states, and what their last evaluation gave."""

    def __init__(self, plan: RunPlan, layouts: ClientLayouts, arena: Arena):
        self.plan, self.layouts, self.arena = plan, layouts, arena

    def record(self, i: int) -> dict[str, Tensor]:
        """Returns the blocks of a client's record."""
        return self.layouts.layout(i).views(self.arena.vectors[i])

    def state(self, i: int) -> Tensor:
        """Returns a client's state as bytes."""
        return self.record(i)["state"]

    def state_blocks(self, i: int) -> dict[str, Tensor]:
        """Returns the blocks of a client's state."""
        return self.layouts.state(i).views(self.state(i))

    def state_block(self, i: int, name: str) -> Tensor:
        """Returns one block of a client's state."""
        return self.layouts.state(i).view(self.state(i), name)

    def store(self, i: int, state: Tensor) -> int:
        """Writes a client's state; returns how often that has been done."""
        self.state(i).copy_(state)
        times = self.record(i)["stored"]
        times += 1
        return int(times)

    def times_stored(self, i: int) -> int:
        """Returns how often a client's state has been stored in this start of the run."""
        return int(self.record(i)["stored"])

    def initialise(self, i: int, pretrained: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Writes the state of a client before its first round."""
        architecture = self.plan.clients[i].architecture
        network = initial_network(self.plan, i, pretrained=pretrained)
        self.state(i).zero_()
        blocks = self.state_blocks(i)
        copy_into(blocks, network)
        for block in self.layouts.declared.blocks(architecture):
            if block.kept:
                blocks[block.name].copy_(initial_block(self.plan, i, block))
        for name, extra in self.layouts.declared.networks(architecture).items():
            if extra.kept:
                other = initial_network(self.plan, i, name, extra.architecture)
                copy_into({key.removeprefix(f"{name}."): block for key, block in blocks.items()}, other)

    def restore(self, i: int, saved: np.ndarray, layout: Layout) -> None:
        """Writes the state of a client from saved bytes of this layout."""
        blocks = self.state_blocks(i)
        for name, block in layout.views(torch.from_numpy(saved)).items():
            blocks[name].copy_(block)
