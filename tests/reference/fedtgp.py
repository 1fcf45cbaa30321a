"""FedTGP (Zhang et al., AAAI 2024): FedProto whose global prototypes the server trains. Equations as there.

P_i^c is the prototype of class c that client i uploads, P̂^c = F(P´^c) the trainable one, ϕ Euclidean.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from hpcfl.utils.seeds import generator, key
from tests.reference.federation import Federation
from tests.reference.fedproto import FedProto, Prototypes


class Trainable(FedProto):
    """Vectors P´ and network F, kept across rounds and trained on the prototypes that each round uploads."""

    def __init__(
        self,
        clients: Federation,
        *,
        server_epochs: int,
        server_network: bool = True,
        server_lr: float | None = None,
        server_batch: int | None = None,
        **options: Any,
    ):
        super().__init__(clients, **options)
        self.epochs, d = server_epochs, clients.features
        self.lr, self.batch = server_lr or clients.settings.lr, server_batch or clients.settings.batch_size
        start = torch.Generator().manual_seed(key(clients.seed, "server network"))
        self.vectors = torch.randn(clients.classes, d, generator=start).requires_grad_()
        layers = [nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)] if server_network else []
        self.f = nn.Sequential(*layers)
        for parameter in self.f.parameters():  # distributed as by torch
            parameter.data = (2 * torch.rand(parameter.shape, generator=start) - 1) / sqrt(d)

    def trained(self) -> Tensor:
        """P̂ = F(P´)."""
        return self.f(self.vectors)

    def random(self) -> Prototypes:
        return dict(enumerate(self.trained().detach()))

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        """S epochs of a new SGD; all K classes are sent."""
        pairs = [pair for p_i in uploads.values() for pair in p_i.items()]
        y, p = torch.tensor([c for c, _ in pairs]), torch.stack([p_ic for _, p_ic in pairs])
        self.inspect(p, y)
        optimiser = torch.optim.SGD([self.vectors, *self.f.parameters()], self.lr)
        for epoch in range(self.epochs):
            order, total = generator(self.clients.seed, "server shuffle", t, epoch).permutation(len(y)), 0.0
            for which in torch.from_numpy(order).split(self.batch):
                loss = self.server_loss(p[which], y[which])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.item() * len(which) / len(y)
        self.logged["/refine/loss"] = total
        return dict(enumerate(self.trained().detach()))

    def inspect(self, p: Tensor, y: Tensor) -> None:
        """Sees all uploads of a round before the first epoch."""

    def server_loss(self, p: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch of uploads."""
        raise NotImplementedError


class FedTgp(Trainable):
    """Contrastive learning with an adaptive margin δ."""

    def __init__(
        self,
        clients: Federation,
        *,
        margin: str = "max-min",
        tau: float = 100.0,
        server_epochs: int = 100,
        **options: Any,
    ):
        super().__init__(clients, server_epochs=server_epochs, **options)
        self.margin, self.tau = margin, tau

    def inspect(self, p: Tensor, y: Tensor) -> None:
        """δ(t) = min(max ϕ(Q^c, Q^c'), τ), (9), of the classes' means Q.

        That is over all pairs (`max-pair`); in published code c' is the class nearest to c (`max-min`).
        """
        q = torch.stack([p[y == c].double().mean(0) for c in y.unique()])
        phi = (q[:, None] - q).norm(dim=2)
        nearest = phi.clone().fill_diagonal_(torch.inf).min(1).values
        largest = {"max-min": nearest.max(), "max-pair": phi.max(), "fixed": self.tau, "none": 0}
        self.delta = self.logged["/refine/delta"] = min(float(largest[self.margin]), self.tau)

    def server_loss(self, p: Tensor, y: Tensor) -> Tensor:
        """−log e^−(ϕ+δ) / (e^−(ϕ+δ) + Σ e^−ϕ'), (10), mean over uploads; (6) has δ = 0, (7) a fixed δ."""
        phi = (p[:, None] - self.trained()).norm(dim=2)
        return cross_entropy(-(phi + self.delta * one_hot(y, self.clients.classes)), y)
