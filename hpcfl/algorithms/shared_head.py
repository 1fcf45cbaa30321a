"""Base of algorithms whose server sends one head to all clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload, tensor
from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.costs import linear_flops
from hpcfl.models.network import build_on_meta
from hpcfl.training.local_client import LocalClient


class SharedHead(Algorithm):
    """Client 0's initial head goes to all before the first round, the server's head before every other."""

    equal_heads = True
    download_changes = "head"
    receivers = "all"

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        head = build_on_meta(plan.clients[0].architecture, plan.data.shape, *plan.dims).head
        self.arrays = [
            Dense(f"head.{number}", tuple(parameter.shape))
            for number, parameter in enumerate(head.parameters())
        ]
        """The parameters of a head; those of different networks have other names, but the same order."""
        self.names = [array.name for array in self.arrays]
        self.head_flops = linear_flops(head)
        """Of a forward pass of one feature vector."""

    @cached_property
    def head(self) -> nn.Module:
        """The server's head, which starts as client 0's; in eval mode, because some networks have dropout."""
        return initial_network(self.plan, 0).head.eval().to(self.server_device)

    def head_payload(self, head: nn.Module) -> Payload:
        """Returns the parameters of a head, in the order of `names`."""
        return {
            name: parameter.detach() for name, parameter in zip(self.names, head.parameters(), strict=True)
        }

    def head_values(self, payload: Payload) -> list[Tensor]:
        """Returns the parameters of a head in a payload, in the order of `names`."""
        return [tensor(payload, name) for name in self.names]

    def mean_head(self, uploads: Sequence[ClientUpload], weight_U: Sequence[float]) -> Payload:
        """Returns the weighted sum of the uploaded heads, in float64; the weights add up to 1."""
        means = [torch.zeros(array.shape, dtype=torch.float64) for array in self.arrays]
        for weight, upload in zip(weight_U, uploads, strict=True):
            for mean, value in zip(means, self.head_values(upload.payload), strict=True):
                mean += weight * value.double()
        return {name: mean.float() for name, mean in zip(self.names, means, strict=True)}

    def download_arrays(self) -> Sequence[Array]:
        return self.arrays

    def initial(self) -> Payload:
        return self.head_payload(self.head)

    @torch.no_grad()
    def apply_download(self, client: LocalClient, download: Payload) -> None:
        for parameter, value in zip(
            client.network.head.parameters(), self.head_values(download), strict=True
        ):
            parameter.copy_(value)
