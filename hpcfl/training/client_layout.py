"""The record of a client in the arena: its state and the results of its last local evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network, build_on_meta
from hpcfl.training.state import Block, Layout, module_blocks
from hpcfl.training.step.options import StepOptions


class Declarations(Protocol):
    """What an algorithm declares about a client's state; an `Algorithm` has it."""

    predictions: tuple[str, ...]

    def blocks(self, architecture: str) -> Sequence[Block]: ...


class ClientLayouts:
    """The layouts of every client's state and record; the same on every rank."""

    def __init__(
        self, plan: RunPlan, declared: Declarations, options: Mapping[str, StepOptions] | None = None
    ):
        self.plan, self.declared = plan, declared
        self.states = {
            name: Layout(
                [
                    *module_blocks(self.network(name), bool(options and options[name].channels_last)),
                    *declared.blocks(name),
                    Block("diverged", torch.bool, ()),
                ]
            )
            for name in plan.architectures
        }

    def network(self, architecture: str) -> Network:
        """Returns a network on the `meta` device, which has no memory."""
        return build_on_meta(architecture, self.plan.data.shape, *self.plan.dims)

    def state(self, i: int) -> Layout:
        """Returns the layout of a client's state: its network, and the blocks that the algorithm declares."""
        return self.states[self.plan.clients[i].architecture]

    def layout(self, i: int) -> Layout:
        """Returns the layout of a client's record: state, test features, correct predictions, silhouette."""
        client = self.plan.clients[i]
        return Layout(
            [
                Block("state", torch.uint8, (self.state(i).nbytes,)),
                Block("z", torch.float32, (len(client.test), self.plan.dims[1])),
                Block("correct", torch.int64, (1 + len(self.declared.predictions),)),
                Block("silhouette", torch.float64, ()),
            ]
        )
