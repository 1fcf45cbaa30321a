"""FML and FedKD: a client trains its own network and a copy of the server's; they learn from each other."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, mse_loss, softmax
from torch.nn.utils import clip_grad_norm_

from hpcfl.models.network import build_network
from hpcfl.utils.seeds import generator, key
from tests.reference.federation import Federation, Replica

Outputs = tuple[Tensor, Tensor]
"""Features and logits of a network."""


class Fml(Replica):
    """αCE + (1 − α)KL(p_g‖p) on the client's network, βCE_g + (1 − β)KL(p‖p_g) on the auxiliary one."""

    def __init__(
        self, clients: Federation, *, auxiliary: str, published=False, clip_norm=10.0, alpha=0.5, beta=0.5
    ):
        super().__init__(clients)
        torch.manual_seed(key(clients.seed, "start auxiliary", 0))
        shape = clients.plan.data.shape
        self.server = build_network(auxiliary, shape, clients.classes, clients.features)
        self.published, self.clip, self.alpha, self.beta = published, clip_norm, alpha, beta

    def divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Σ_k q log(q/p), averaged over the batch; in published code also over classes, nothing detached."""
        if not self.published:
            teacher = teacher.detach()
        each = softmax(teacher, 1) * (log_softmax(teacher, 1) - log_softmax(student, 1))
        return each.mean() if self.published else each.sum(1).mean()

    def terms(self, own: Outputs, other: Outputs, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses of both networks; published code descends their sum."""
        (_, p), (_, q) = own, other
        return (
            self.alpha * cross_entropy(p, y) + (1 - self.alpha) * self.divergence(p, q),
            self.beta * cross_entropy(q, y) + (1 - self.beta) * self.divergence(q, p),
        )

    def groups(self, i: int, auxiliary: Any) -> list[list[Tensor]]:
        """What is trained, each by its own optimiser."""
        return [[*self.clients.networks[i].parameters()], [*auxiliary.parameters()]]

    def train(self, t: int, i: int) -> Any:
        """Trains client i and a copy of the server's network; returns the copy."""
        clients, settings = self.clients, self.clients.settings
        (x, y), network, auxiliary = clients.train_data[i], clients.networks[i], deepcopy(self.server)
        groups = self.groups(i, auxiliary)
        optimisers = [clients.optimiser(group, t) for group in groups]
        torch.manual_seed(key(clients.seed, "train", i, t))
        network.train()
        auxiliary.train()
        total, passed = 0.0, 0
        for epoch in range(settings.epochs):
            has_batch_norm = network.has_batch_norm or auxiliary.has_batch_norm
            for which in clients.batches(t, i, epoch, has_batch_norm):
                features = [each.extractor(x[which]) for each in (network, auxiliary)]
                outputs = [
                    (features[0], network.head(features[0])),
                    (features[1], auxiliary.head(features[1])),
                ]
                own, other = self.terms(outputs[0], outputs[1], y[which])
                for optimiser in optimisers:
                    optimiser.zero_grad()
                own.backward(retain_graph=True)
                other.backward()
                for group, optimiser in zip(groups, optimisers, strict=True):
                    clip_grad_norm_(group, self.clip)
                    optimiser.step()
                total += own.item() * len(which)
                passed += len(which)
        self.losses[i] = total / passed
        return auxiliary

    def compress(self, value: Tensor, t: int) -> Tensor:
        return value

    @torch.no_grad()
    def run_round(self, t: int) -> None:
        """The server's network is the mean of the participants', without weights."""
        self.losses = {}
        with torch.enable_grad():
            trained = [self.train(t, i) for i in self.clients.participants(t)]
        for name, parameter in self.server.named_parameters():
            values = [self.compress(each.get_parameter(name).double(), t) for each in trained]
            parameter.copy_(self.compress(torch.stack(values).mean(0), t))

    def sent(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.server.parameters()]


class FedKd(Fml):
    """Both losses also pull features together, through a map that each client keeps; factors travel."""

    def __init__(
        self, clients: Federation, *, auxiliary: str, published=False, clip_norm=10.0,
        energy_start=0.95, energy_end=0.98, energy_rounds=1000,
    ):  # fmt: skip
        super().__init__(clients, auxiliary=auxiliary, published=published, clip_norm=clip_norm)
        self.energy = energy_start, energy_end, energy_rounds
        bound, size = clients.features**-0.5, (clients.features, clients.features)
        start = [generator(clients.seed, "start block map", 1, i) for i in clients.ids]
        self.maps = [torch.from_numpy(each.uniform(-bound, bound, size)).float() for each in start]
        with torch.no_grad():
            for parameter in self.server.parameters():
                parameter.copy_(self.compress(parameter.double(), 0))

    def groups(self, i: int, auxiliary: Any) -> list[list[Tensor]]:
        self.map = self.maps[i].requires_grad_()
        return [*super().groups(i, auxiliary), [self.map]]

    def terms(self, own: Outputs, other: Outputs, y: Tensor) -> tuple[Tensor, Tensor]:
        """CE + (KL + MSE(z, W z_g)) / s with s = CE + CE_g; s and teachers are constants."""
        (z, p), (z_g, q) = own, other
        ce, ce_g, mapped = cross_entropy(p, y), cross_entropy(q, y), z_g @ self.map.T
        s = ce + ce_g
        mse = mse_g = mse_loss(z, mapped)
        if not self.published:
            s, mse, mse_g = s.detach(), mse_loss(z, mapped.detach()), mse_loss(mapped, z.detach())
        return ce + (self.divergence(p, q) + mse) / s, ce_g + (self.divergence(q, p) + mse_g) / s

    def compress(self, value: Tensor, t: int) -> Tensor:
        """Keeps the singular values of a matrix, or of every kernel, that have the round's share of energy.

        Published code zeroes a matrix that needs all of them; here a matrix stays whole where factors would
        not be smaller.
        """
        if value.dim() < 2:
            return value
        start, end, rounds = self.energy
        u, s, v = np.linalg.svd(value.numpy(), full_matrices=False)
        squares = np.square(s).reshape(-1, s.shape[-1]).sum(0)
        limit = (start + (end - start) * t / rounds) * squares.sum()
        rank = min(rank for rank in range(1, len(squares) + 1) if squares[:rank].sum() > limit)
        if self.published and rank == len(squares):
            rank = 0
        rows, columns = value.shape[-2:]
        if not self.published and rank * (rows + columns) >= rows * columns:
            return value
        return torch.from_numpy((u[..., :rank] * s[..., None, :rank]) @ v[..., :rank, :])

    def sent(self) -> list[Tensor]:
        """Factors are not unique: the losses of the next round show what they multiply to."""
        return []
