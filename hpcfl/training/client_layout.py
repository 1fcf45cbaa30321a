"""The record of a client in the arena: its state and the results of its last local evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network, build_on_meta
from hpcfl.training.state import Block, Layout, module_blocks
from hpcfl.training.step.options import StepOptions


@dataclass(frozen=True)
class ExtraNetwork:
    """A second network of a client."""

    architecture: str
    kept: bool = False
    """Whether it is part of the client's state; if not, every download brings it."""


class Declarations(Protocol):
    """What an algorithm declares about a client's state; an `Algorithm` has it."""

    predictions: tuple[str, ...]

    def blocks(self, architecture: str) -> Sequence[Block]: ...

    def networks(self, architecture: str) -> Mapping[str, ExtraNetwork]: ...


def networks_of_clients(plan: RunPlan, declared: Declarations) -> dict[str, tuple[str, ...]]:
    """Returns the architectures of all networks that a client trains, by the architecture of its own."""
    return {
        name: (name, *(extra.architecture for extra in declared.networks(name).values()))
        for name in plan.architectures
    }


class ClientLayouts:
    """The layouts of every client's state and record; the same on every rank."""

    def __init__(
        self, plan: RunPlan, declared: Declarations, options: Mapping[str, StepOptions] | None = None
    ):
        self.plan, self.declared, self.options = plan, declared, options
        self.states, self.scratch = {}, {}
        """By architecture: a client's state, and what a rank needs beside it while it trains the client."""
        for name in plan.architectures:
            blocks = [
                *module_blocks(self.network(name), self._channels_last(name)),
                *declared.blocks(name),
                *self._extra_blocks(name),
                Block("diverged", torch.bool, ()),
            ]
            self.states[name] = Layout(block for block in blocks if block.kept)
            self.scratch[name] = Layout(block for block in blocks if not block.kept)

    def buffer_bytes(self, architecture: str) -> int:
        """Returns the bytes of a client on the rank that trains it."""
        return self.states[architecture].nbytes + self.scratch[architecture].nbytes

    def _channels_last(self, architecture: str) -> bool:
        return bool(self.options and self.options[architecture].channels_last)

    def _extra_blocks(self, architecture: str) -> Iterator[Block]:
        """Yields the blocks of a client's further networks; their names begin with that of the network."""
        for name, extra in self.declared.networks(architecture).items():
            for block in module_blocks(self.network(extra.architecture), self._channels_last(architecture)):
                yield replace(block, name=f"{name}.{block.name}", kept=extra.kept)

    def network(self, architecture: str) -> Network:
        """Returns a network on the `meta` device, which has no memory."""
        return build_on_meta(architecture, self.plan.data.shape, *self.plan.dims)

    def state(self, i: int) -> Layout:
        """Returns the layout of a client's state: its network, and the blocks that the algorithm declares."""
        return self.states[self.plan.clients[i].architecture]

    def layout(self, i: int) -> Layout:
        """Returns the layout of a client's record.

        Its state, how often that was stored, its test features, correct predictions and silhouette, and
        features and correct predictions of its validation samples if it has any. Only clients that are
        evaluated have features.
        """
        client, evaluated = self.plan.clients[i], bool(self.plan.evaluated_M[i])
        blocks = [
            Block("state", torch.uint8, (self.state(i).nbytes,)),
            Block("stored", torch.int64, ()),
            *self._evaluation("", len(client.test) * evaluated),
            Block("silhouette", torch.float64, ()),
        ]
        if len(client.validation):
            blocks += self._evaluation("validation_", len(client.validation) * evaluated)
        return Layout(blocks)

    def _evaluation(self, prefix: str, samples: int) -> list[Block]:
        """Returns the blocks of features and correct predictions of a part of a client's samples."""
        return [
            Block(f"{prefix}z", torch.float32, (samples, self.plan.dims[1])),
            Block(f"{prefix}correct", torch.int64, (1 + len(self.declared.predictions),)),
        ]
