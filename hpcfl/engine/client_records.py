"""The records of this node's clients, as they lie in the arena."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from hpcfl.algorithms.initial_network import write_initial_state
from hpcfl.federation.run_plan import RunPlan
from hpcfl.runtime.arena import Arena
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.state import Layout


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
        write_initial_state(self.plan, self.layouts, i, self.state(i), pretrained)

    def restore(self, i: int, saved: np.ndarray | None, layout: Layout) -> None:
        """Writes the state of a client from saved bytes of this layout; None: as before its first round."""
        if saved is None:
            self.initialise(i, {})
            return
        blocks = self.state_blocks(i)
        for name, block in layout.views(torch.from_numpy(saved)).items():
            blocks[name].copy_(block)
