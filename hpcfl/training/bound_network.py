"""A network whose parameters are views of a worker's buffer, so that it serves all clients that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from hpcfl.config.schema import TrainConfig
from hpcfl.models.network import Network
from hpcfl.training.state import Layout, bind
from hpcfl.training.step.options import StepOptions
from hpcfl.training.step.step import Step, make_step


@dataclass(frozen=True)
class BoundNetwork:
    """The training step of a network, and the blocks of the client state that is in the buffer."""

    step: Step
    layout: Layout
    views: Mapping[str, Tensor]

    @property
    def diverged(self) -> bool:
        return bool(self.views["diverged"])


def bind_network(
    network: Network, layout: Layout, buffer: Tensor, train: TrainConfig, options: StepOptions
) -> BoundNetwork:
    """Returns a network of the `meta` device, bound to a buffer."""
    views = layout.views(buffer)
    bind(network, views)
    return BoundNetwork(make_step(network, train, options), layout, views)
