"""An algorithm that uses all of the seam: networks travel, a second network and a block are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from hpcfl.algorithms.algorithm import Algorithm, Values
from hpcfl.algorithms.fedavg import FedAvg
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.algorithms.lg_fedavg import LgFedAvg
from hpcfl.config.section import Positive, Section
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload, Shaped, tensor
from hpcfl.metrics.metric import Metric, declare, trained
from hpcfl.training.client_layout import ExtraNetwork
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.state import Block


class ToyOptions(Section):
    pull: Positive = 0.5
    """How far a client's second network moves towards its first in a round."""


class Toy(Algorithm):
    """Averages whole networks; each client keeps a second network that follows its first one."""

    Options = ToyOptions
    metrics: ClassVar[tuple[Metric, ...]] = (
        declare("/client/visits", "round client", "f8", "rounds so far", trained("visits")),
    )
    equal_heads = True
    download_changes = "network"
    receivers = "all"

    def download_arrays(self) -> Sequence[Array]:
        return [Dense(name, tuple(value.shape)) for name, value in self._initial().items()]

    def upload_arrays(self) -> Sequence[Array]:
        return [*self.download_arrays(), Shaped("rounds", 1, max_numbers=1000, counted=False)]

    def _initial(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in initial_network(self.plan, 0).named_parameters()}

    def initial(self) -> Payload:
        return {**self._initial()}

    def blocks(self, architecture: str) -> Sequence[Block]:
        return [
            Block("visits", torch.float64, (), start=1.0),
            Block("distance", torch.float64, (3,), start=5.0, kept=False),
        ]

    def networks(self, architecture: str) -> Mapping[str, ExtraNetwork]:
        return {"follower": ExtraNetwork(architecture, kept=True), "scratch": ExtraNetwork("mlp_64")}

    @torch.no_grad()
    def apply_download(self, client: LocalClient, download: Payload) -> None:
        for name, parameter in client.network.named_parameters():
            parameter.copy_(tensor(download, name))

    def train(self, client: LocalClient, download: Payload) -> Losses:
        assert client.blocks["distance"].tolist() == [5.0] * 3, "what another client left"
        losses = client.train()
        client.blocks["visits"].add_(1)
        client.metrics["visits"] = client.blocks["visits"].item()
        follower = client.extra_steps["follower"].network
        with torch.no_grad():
            client.blocks["distance"].zero_()
            for own, other in zip(client.network.parameters(), follower.parameters(), strict=True):
                client.blocks["distance"][0] += (own - other).square().sum()
                other.lerp_(own, self.options.pull)
            for parameter in client.extra_steps["scratch"].network.parameters():
                parameter.fill_(client.id)
        return losses | {"visits": client.metrics["visits"].item()}

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        """Returns the mean of both networks, and as many numbers as the client was trained."""
        follower = dict(client.extra_steps["follower"].network.named_parameters())
        half = {
            name: ((own + follower[name]) / 2).detach() for name, own in client.network.named_parameters()
        }
        return half | {"rounds": torch.ones(int(client.blocks["visits"]))}

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        self.longest = max((len(tensor(upload.payload, "rounds")) for upload in uploads), default=0)
        if not uploads:
            return last
        return {
            name: torch.stack([tensor(upload.payload, name).double() for upload in uploads]).mean(0).float()
            for name in last
        }

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        assert self.longest <= t + 2
        return {}


class Mix(LgFedAvg):
    """LG-FedAvg whose clients keep a share of their own head, which falls with every round that they train.

    What a download makes of a head depends on a block of the client.
    """

    def blocks(self, architecture: str) -> Sequence[Block]:
        return [Block("share", torch.float64, (), start=0.9)]

    @torch.no_grad()
    def apply_download(self, client: LocalClient, download: Payload) -> None:
        share = client.blocks["share"].item()
        for parameter, value in zip(
            client.network.head.parameters(), self.head_values(download), strict=True
        ):
            parameter.lerp_(value, 1 - share)

    def train(self, client: LocalClient, download: Payload) -> Losses:
        client.blocks["share"].mul_(0.5)
        return client.train()

    def predict(self, client: LocalClient, z_ND: Tensor) -> Mapping[str, Tensor]:
        return {"first": torch.zeros(len(z_ND), dtype=torch.int64)}

    predictions = ("first",)


class Unlucky(FedAvg):
    """FedAvg in which the networks of half of the clients are not finite, except in the second round."""

    def train(self, client: LocalClient, download: Payload) -> Losses:
        losses = client.train()
        if client.id % 2 == 0 and client.round != 1:
            client.blocks["head.bias"].fill_(torch.inf)
        return losses
