"""Base of algorithms whose server sends one head to all clients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.exchange.payload import Array, Dense, Payload, tensor
from hpcfl.federation.run_plan import RunPlan
from hpcfl.training.local_client import LocalClient


class SharedHead(Algorithm):
    """Client 0's initial head goes to all before the first round, the server's head before every other."""

    equal_heads = True
    download_changes = "head"
    receivers = "all"

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        self.head = initial_network(plan, 0).head.to(device)
        """The server's head; heads of different networks have the same parameters in the same order."""
        self.names = [f"head.{number}" for number, _ in enumerate(self.head.parameters())]

    def head_arrays(self) -> list[Array]:
        return [
            Dense(name, tuple(parameter.shape))
            for name, parameter in zip(self.names, self.head.parameters(), strict=True)
        ]

    def head_payload(self, head: torch.nn.Module) -> Payload:
        """Returns the parameters of a head, in the order of `names`."""
        return {
            name: parameter.detach() for name, parameter in zip(self.names, head.parameters(), strict=True)
        }

    def head_values(self, payload: Payload) -> list[Tensor]:
        """Returns the parameters of a head in a payload, in the order of `names`."""
        return [tensor(payload, name) for name in self.names]

    def download_arrays(self) -> Sequence[Array]:
        return self.head_arrays()

    def initial(self) -> Payload:
        return self.head_payload(self.head)

    @torch.no_grad()
    def apply_download(self, client: LocalClient, download: Payload) -> None:
        for parameter, value in zip(
            client.network.head.parameters(), self.head_values(download), strict=True
        ):
            parameter.copy_(value)
