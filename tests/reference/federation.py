"""A federation in plain torch, from which replicas of methods are made in a few lines.

Initial networks, splits, participants and the order of batches are hpcfl's; all else is written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from hpcfl.config.loading import load_config
from hpcfl.federation.participants import select_participants
from hpcfl.federation.run_plan import plan_run
from hpcfl.models.network import build_network
from hpcfl.training.samples import SampleSource
from hpcfl.utils.seeds import generator, key

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, labels) → what is added to the cross-entropy."""


class Federation:
    """The clients of a run, each with its network before the first round."""

    def __init__(self, settings: list[str]):
        plan = plan_run(load_config(None, settings))
        self.seed, self.lr, self.batch = plan.config.seed, plan.config.train.lr, plan.config.train.batch_size
        self.epochs, self.clients = plan.config.train.epochs, len(plan.clients)
        self.classes, self.features = plan.dims
        self.per_round, self.clip = plan.config.federation.per_round, 0.0
        self.z = torch.empty(0)
        """The features of the batch that is trained on."""
        source = SampleSource(plan.data, plan.config.data, torch.device("cpu"))
        self.networks: list[Any] = []
        self.train_data: list[tuple[Tensor, Tensor]] = []
        self.test_data: list[tuple[Tensor, Tensor]] = []
        for i, client in enumerate(plan.clients):
            torch.manual_seed(key(self.seed, "start", i))
            self.networks.append(build_network(client.architecture, plan.data.shape, *plan.dims))
            for index, part in ((client.train, self.train_data), (client.test, self.test_data)):
                part.append(source.samples(index).batch(np.arange(len(index))))

    def participants(self, t: int) -> list[int]:
        return [int(i) for i in select_participants(self.seed, t, self.clients, self.per_round)]

    def samples(self, i: int) -> int:
        return len(self.train_data[i][1])

    def train(self, t: int, i: int, loss: Loss | None = None, observe: Any = None) -> float:
        """Trains client i by a new SGD and returns its mean loss; `observe` gets logits and labels."""
        (x, y), network, total = self.train_data[i], self.networks[i], 0.0
        optimiser = torch.optim.SGD(network.parameters(), self.lr)
        torch.manual_seed(key(self.seed, "train", i, t))  # dropout
        network.train()
        for epoch in range(self.epochs):
            order = torch.from_numpy(generator(self.seed, "shuffle", i, t, epoch).permutation(len(y)))
            batches = list(order.split(self.batch))
            if len(batches[-1]) == 1 and network.has_batch_norm:  # which needs two samples
                batches[-2:] = [torch.cat(batches[-2:])]
            for which in batches:
                optimiser.zero_grad()
                self.z = network.extractor(x[which])
                logits = network.head(self.z)
                value = cross_entropy(logits, y[which])
                if loss:
                    value = value + loss(logits, y[which])
                value.backward()
                if self.clip:
                    torch.nn.utils.clip_grad_norm_(network.parameters(), self.clip)
                optimiser.step()
                total += value.item() * len(which)
                if observe:
                    observe(logits.detach(), y[which])
        self.z = torch.empty(0)
        return total / (self.epochs * len(y))

    def round_loss(self, loss: dict[int, float]) -> float:
        """Returns the mean loss over the participants' samples."""
        return sum(loss[i] * self.samples(i) for i in loss) / sum(map(self.samples, loss))

    @torch.no_grad()
    def prototypes(self, i: int) -> dict[int, Tensor]:
        """Returns the means of a client's features by class, in eval mode."""
        (x, y), network = self.train_data[i], self.networks[i].eval()
        z = network.extractor(x)
        return {k: z[y == k].mean(0) for k in sorted(set(y.tolist()))}

    @torch.no_grad()
    def accuracy(self, head: list[Tensor] | None = None) -> list[float]:
        """Returns the accuracy of every client on its test samples, by its own head or by another."""
        found = []
        for network, (x, y) in zip(self.networks, self.test_data, strict=True):
            z = network.eval().extractor(x)
            logits = linear(z, *head) if head else network.head(z)
            found.append((logits.argmax(1) == y).double().mean().item())
        return found

    def get_head(self, i: int) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.networks[i].head.parameters()]

    @torch.no_grad()
    def set_head(self, i: int, head: list[Tensor]) -> None:
        for parameter, value in zip(self.networks[i].head.parameters(), head, strict=True):
            parameter.copy_(value)
