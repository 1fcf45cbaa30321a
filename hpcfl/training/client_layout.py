"""The record of a client in the arena: its state and the results of its last local evaluation."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network, build_on_meta
from hpcfl.training.state import Block, Layout, module_blocks
from hpcfl.training.step.options import StepOptions


class ClientLayouts:
    """The layouts of every client's state and record; the same on every rank."""

    def __init__(self, plan: RunPlan, options: Mapping[str, StepOptions] | None = None):
        self.plan = plan
        classes, features = plan.dims
        self.states: dict[str, Layout] = {}
        for name in plan.architectures:
            extra = (
                Block("local.value", torch.float32, (classes, features)),
                Block("local.present", torch.bool, (classes,)),
                Block("diverged", torch.bool, ()),
                Block("thresholds", torch.float64, (2,)),
            )
            self.states[name] = Layout(
                [*module_blocks(self.network(name), bool(options and options[name].channels_last)), *extra]
            )

    def network(self, architecture: str) -> Network:
        """Returns a network on the `meta` device, which has no memory."""
        return build_on_meta(architecture, self.plan.data.shape, *self.plan.dims)

    def state(self, i: int) -> Layout:
        """Returns the layout of a client's state: network, local prototypes, thresholds."""
        return self.states[self.plan.clients[i].architecture]

    def layout(self, i: int) -> Layout:
        """Returns the layout of a client's record: state, test features, correct predictions, silhouette."""
        client = self.plan.clients[i]
        return Layout(
            [
                Block("state", torch.uint8, (self.state(i).nbytes,)),
                Block("z", torch.float32, (len(client.test), self.plan.dims[1])),
                Block("correct", torch.int64, (2,)),
                Block("silhouette", torch.float64, ()),
            ]
        )
