"""A federation in plain torch, in which the replicas run.

Data and their split, initial networks, participants, the order of batches and random views of images are
hpcfl's. What papers describe is not: local training is below, and each method is written anew in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import cos, nan, pi
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.config.loading import load_config
from hpcfl.federation.participants import select_participants
from hpcfl.federation.run_plan import plan_run
from hpcfl.models.network import build_network
from hpcfl.training.augmentation import STRONG, WEAK, augmentation_of
from hpcfl.training.samples import SampleSource
from hpcfl.utils.seeds import generator, key

Loss = Callable[..., Tensor | float]
"""(logits, features, labels; features and labels of views) → what is added to the cross-entropy."""
Views = Callable[[int], Iterator[tuple[Tensor, Tensor]]]
"""Epoch → further inputs and their labels for every batch."""


def no_loss(*_: Tensor) -> float:
    return 0.0


class Federation:
    """The clients of a run, each with its network before the first round."""

    def __init__(self, settings: list[str]):
        self.plan = plan = plan_run(load_config(None, settings))
        self.seed, self.settings = plan.config.seed, plan.config.train
        self.ids, (self.classes, self.features) = range(len(plan.clients)), plan.dims
        self.clip = 0.0
        """The norm to which gradients are clipped; 0: never."""
        self.source = SampleSource(plan.data, plan.config.data, torch.device("cpu"))
        self.networks: list[Any] = []
        for i in self.ids:
            torch.manual_seed(key(self.seed, "start", i))
            self.networks.append(build_network(plan.clients[i].architecture, plan.data.shape, *plan.dims))
        self.train_data = [self._samples(client.split.train) for client in plan.clients]
        self.test_data = [self._samples(client.split.test) for client in plan.clients]

    def _samples(self, index: np.ndarray, view: Any = None) -> tuple[Tensor, Tensor]:
        return self.source.samples(index).batch(np.arange(len(index)), view)

    def participants(self, t: int) -> list[int]:
        number = self.plan.config.federation.per_round
        return [int(i) for i in select_participants(self.seed, t, len(self.ids), number)]

    def count(self, i: int, j: int | None = None) -> int:
        """Returns n_ij, the number of training samples of class j at client i; without j, n_i."""
        y = self.train_data[i][1]
        return len(y) if j is None else int((y == j).sum())

    def weak_views(self, i: int, t: int) -> Tensor:
        """Returns the unlabelled samples of client i, cropped and flipped at random."""
        return self._views(i, t, 0, WEAK, "crop", "flip")

    def strong_views(self, i: int, t: int, epoch: int = 0) -> Tensor:
        """Returns the unlabelled samples of client i, changed by RandAugment, too."""
        return self._views(i, t, epoch, STRONG, "crop", "flip", "randaugment")

    def _views(self, i: int, t: int, epoch: int, kind: int, *steps: str) -> Tensor:
        view = augmentation_of(self.plan, i, t, epoch, kind, steps)
        return self._samples(self.plan.clients[i].split.unlabelled, view)[0]

    def train(self, t: int, i: int, loss: Loss = no_loss, views: Views | None = None) -> float:
        """Trains client i in round t by a new optimiser and returns its mean loss.

        Views pass through the extractor together with a batch, and count only in `loss`.
        """
        (x, y), network, settings, total = self.train_data[i], self.networks[i].train(), self.settings, 0.0
        optimiser = self.optimiser(network.parameters(), t)
        torch.manual_seed(key(self.seed, "train", i, t))  # dropout
        for epoch in range(settings.epochs):
            batches = self.batches(t, i, epoch, network.has_batch_norm)
            further = views(epoch) if views else None
            for which in batches:
                x_u, y_u = next(further) if further else (x[:0], y[:0])
                z, z_u = network.extractor(torch.cat([x[which], x_u])).split([len(which), len(x_u)])
                logits, strong = network.head(z), (z_u, y_u) if views else ()
                value = cross_entropy(logits, y[which]) + loss(logits, z, y[which], *strong)
                optimiser.zero_grad()
                value.backward()
                if self.clip:
                    torch.nn.utils.clip_grad_norm_(network.parameters(), self.clip)
                optimiser.step()
                total += value.item() * len(which)
        return total / (settings.epochs * sum(map(len, batches)))

    def optimiser(self, parameters: Iterable[Tensor], t: int) -> torch.optim.Optimizer:
        """Returns torch's own optimiser, with the learning rate of round t."""
        s, rounds = self.settings, self.settings.lr_rounds or 1
        if s.lr_schedule == "step":
            rate = s.lr * s.lr_factor ** (t // rounds)
        elif s.lr_schedule == "cosine":
            rate = s.lr_min + (s.lr - s.lr_min) / 2 * (1 + cos(pi * min(t / rounds, 1)))
        else:
            rate = s.lr
        if s.optimizer == "sgd":
            return torch.optim.SGD(parameters, rate, s.momentum, weight_decay=s.weight_decay)
        adam = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[s.optimizer]
        return adam(parameters, rate, weight_decay=s.weight_decay)

    def batches(self, t: int, i: int, epoch: int, has_batch_norm: bool) -> list[Tensor]:
        """Returns which samples are in each batch of an epoch."""
        settings, rng = self.settings, ("shuffle", i, t, epoch) if self.settings.shuffle else ("order", i)
        order = torch.from_numpy(generator(self.seed, *rng).permutation(self.count(i)))
        batches = list(order.split(settings.batch_size))
        if settings.drop_last and len(batches[-1]) < settings.batch_size:
            batches.pop()
        if len(batches[-1]) == 1 and has_batch_norm:  # which needs two samples
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    @torch.no_grad()
    def extract(self, i: int, x: Tensor) -> Tensor:
        """Returns the features f_i(x), in eval mode."""
        return self.networks[i].eval().extractor(x)


class Replica:
    """A method in plain torch."""

    def __init__(self, clients: Federation):
        self.clients = clients
        self.losses: dict[int, float] = {}
        """The mean losses of the round's participants."""
        self.diverged: set[int] = set()
        """Clients whose network is not finite any more: they train no more, and predict nothing right."""

    def run_round(self, t: int) -> None:
        """Does round t, counted from 0."""
        raise NotImplementedError

    def results(self) -> dict[str, Any]:
        """Returns what the log must show after the round, by path."""
        return {
            "/client/loss": [self.losses.get(i, nan) for i in self.clients.ids],
            "/client/accuracy_head": self.accuracy(lambda i, z: self.clients.networks[i].head(z).argmax(1)),
        }

    def sent(self) -> list[Tensor]:
        """Returns what the server sends after the round, where the log does not show it."""
        return []

    @torch.no_grad()
    def accuracy(self, predict: Callable[[int, Tensor], Tensor | None]) -> list[float]:
        """Returns the accuracy of every client on its test samples; NaN where there is no prediction."""
        found = []
        for i, (x, y) in enumerate(self.clients.test_data):
            label = predict(i, self.clients.extract(i, x))
            correct = nan if label is None else (label == y).double().mean().item()
            found.append(0.0 if i in self.diverged else correct)
        return found
