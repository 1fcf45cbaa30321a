"""Networks whose parameters are views of a worker's buffer, so that they serve all clients that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from hpcfl.config.train import TrainConfig
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.state import Block, Layout, bind
from hpcfl.training.step.options import StepOptions
from hpcfl.training.step.step import Step, make_step


@dataclass(frozen=True)
class BoundNetwork:
    """The training step of an architecture's network, and the blocks of the client that is in the buffer."""

    step: Step
    extra_steps: Mapping[str, Step]
    """The training steps of the further networks that the algorithm declares, by name."""
    layout: Layout
    scratch: Sequence[Block]
    """The algorithm's blocks that are not part of the state; each client finds their start value."""
    views: Mapping[str, Tensor]

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate of all its networks."""
        for step in (self.step, *self.extra_steps.values()):
            step.optimizer.rule.lr = lr


def bind_network(
    architecture: str, layouts: ClientLayouts, buffer: Tensor, train: TrainConfig, options: StepOptions
) -> BoundNetwork:
    """Returns the networks of an architecture's clients, built on the `meta` device and bound to a buffer."""
    layout = layouts.states[architecture]
    views = layout.views(buffer) | layouts.scratch[architecture].views(buffer[layout.nbytes :])
    network = layouts.network(architecture)
    bind(network, views)
    extra_steps = {}
    for name, extra in layouts.declared.networks(architecture).items():
        other, prefix = layouts.network(extra.architecture), f"{name}."
        bind(other, {key.removeprefix(prefix): views[key] for key in views if key.startswith(prefix)})
        extra_steps[name] = make_step(other, train, options)
    scratch = [block for block in layouts.declared.blocks(architecture) if not block.kept]
    return BoundNetwork(make_step(network, train, options), extra_steps, layout, scratch, views)
