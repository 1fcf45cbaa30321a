"""FedGen: the server trains a generator of features, on which clients train their heads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from hpcfl.utils.seeds import generator, key
from tests.reference.baselines import LgFedAvg, copy
from tests.reference.federation import Federation, no_loss


class FedGen(LgFedAvg):
    """LG-FedAvg; clients add CE(head(G(ε, y)), y) with labels drawn from the class counts seen so far."""

    def __init__(self, clients: Federation, *, noise=32, server_steps=100, server_lr=0.1):
        super().__init__(clients)
        self.noise, self.steps, self.lr = noise, server_steps, server_lr
        torch.manual_seed(key(clients.seed, "start generator"))
        d, inputs = clients.features, noise + clients.classes
        self.first = nn.Linear(inputs, d)
        self.g = nn.Sequential(self.first, nn.BatchNorm1d(d), nn.ReLU(), nn.Linear(d, d)).train()
        self.count: dict[int, Tensor] = {}

    def make(self, noise: Tensor, y: Tensor) -> Tensor:
        return self.g(torch.cat([noise, one_hot(y, self.clients.classes)], 1))

    def train(self, t: int) -> None:
        self.losses, classes, size = {}, self.clients.classes, self.clients.settings.batch_size
        pooled = sum(self.count.values(), torch.zeros(classes))
        for i in self.clients.participants(t):
            head = self.clients.networks[i].head
            copy(self.head, head)

            def loss(logits: Tensor, z: Tensor, y: Tensor, head=head) -> Tensor:
                y = torch.multinomial(pooled.double(), size, replacement=True)
                return cross_entropy(head(self.make(torch.rand(size, self.noise), y).detach()), y)

            self.losses[i] = self.clients.train(t, i, loss if t else no_loss)
            self.count[i] = torch.bincount(self.clients.train_data[i][1], minlength=classes)

    def run_round(self, t: int) -> None:
        super().run_round(t)
        rng = generator(self.clients.seed, "generator", t)
        pooled = torch.stack([*self.count.values()]).sum(0).numpy()
        size = self.steps, self.clients.settings.batch_size
        y = torch.from_numpy(rng.choice(len(pooled), size, p=pooled / pooled.sum()))
        noise = torch.from_numpy(rng.random((*size, self.noise), dtype=np.float32))
        optimiser, n = (
            torch.optim.Adam(self.g.parameters(), self.lr),
            sum(map(self.clients.count, self.losses)),
        )
        heads = {i: self.clients.networks[i].head.eval() for i in self.losses}
        for step in range(self.steps):
            z = self.make(noise[step], y[step])
            logits = sum(self.clients.count(i) / n * heads[i](z) for i in heads)
            optimiser.zero_grad()
            cross_entropy(logits, y[step]).backward()
            optimiser.step()

    def sent(self) -> list[Tensor]:
        """The head, and after the first round the first of the generator's parameters, too."""
        return [*super().sent(), self.first.weight.detach()] if self.count else super().sent()
