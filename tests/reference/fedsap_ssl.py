"""FedSAP's semi-supervised phase, Sect. 3.6. Equations as there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from hpcfl.utils.seeds import generator
from tests.reference.federation import Federation, Views
from tests.reference.fedproto import Prototypes
from tests.reference.fedsap import FedSap, cosines


class FedSapSsl(FedSap):
    """FedSAP that learns from unlabelled samples, too, after `semi` rounds."""

    def __init__(
        self,
        clients: Federation,
        *,
        semi: int = 100,
        consistency: float = 1.0,
        mix: float = 0.5,
        margin_quantile: float = 0.5,
        distance_quantile: float = 0.9,
        **options: Any,
    ):
        super().__init__(clients, **options)
        self.semi, self.consistency, self.alpha = semi, consistency, mix
        self.quantiles = margin_quantile, distance_quantile
        self.thresholds: dict[int, tuple[Tensor, Tensor]] = {}
        """M and D_max of a client."""
        self.accepted: dict[int, tuple[Tensor, Tensor]] = {}
        """A_q of a client: which unlabelled samples, and their pseudo-labels."""

    def run_round(self, t: int) -> None:
        self.accepted = {}
        super().run_round(t)
        self.logged["/round/accepted"] = sum(len(label) for _, label in self.accepted.values())

    def distances(self, i: int, x: Tensor) -> tuple[list[int], Tensor]:
        """Returns the client's own classes and 1 − cos to their global prototypes, in float64."""
        own = [j for j in sorted(self.c) if self.clients.count(i, j)]
        p = torch.stack([self.c[j] for j in own])
        return own, 1 - cosines(self.clients.extract(i, x).double(), p.double())

    def calibrate(self, i: int) -> tuple[Tensor, Tensor]:
        """Returns M and D_max: quantiles of the labelled samples' margins and true-class distances."""
        x, y = self.clients.train_data[i]
        own, d = self.distances(i, x)
        known = [b for b, j in enumerate(y.tolist()) if j in own]
        true = torch.stack([d[b, own.index(int(y[b]))] for b in known])
        return margins(d[known]).quantile(self.quantiles[0]), true.quantile(self.quantiles[1])

    def label(self, t: int, i: int) -> tuple[Tensor, Tensor]:
        """Returns A_q: the samples whose weak views pass (11), and their pseudo-labels, (10)."""
        if i not in self.thresholds:  # its first round of this phase
            self.thresholds[i] = self.calibrate(i)
        (m, d_max), (own, d) = self.thresholds[i], self.distances(i, self.clients.weak_views(i, t))
        accepted = ((margins(d) > m) & (d.min(1).values < d_max)).nonzero()[:, 0]
        return accepted, torch.tensor(own)[d.argmin(1)][accepted]

    def views(self, t: int, i: int) -> Views | None:
        """Strong views of accepted samples: as many as in a labelled batch, shuffled again and again."""
        if t < self.semi:
            return None
        accepted, label = self.accepted[i] = self.label(t, i)
        size = min(self.clients.settings.batch_size, len(accepted))

        def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
            x = self.clients.strong_views(i, t, epoch)
            left: list[int] = []
            rng = generator(self.clients.seed, "strong", i, t, epoch)
            while True:
                if len(left) < size:
                    left += rng.permutation(len(accepted)).tolist()
                which, left = left[:size], left[size:]
                yield x[accepted[which]], label[which]

        return batches if size else None

    def loss(self, t: int, i: int, logits: Tensor, z: Tensor, y: Tensor, *strong: Tensor) -> Tensor | float:
        """(13); L_Cons, (12), is the mean of 1 − cos of strong views to the prototypes of their labels."""
        value = super().loss(t, i, logits, z, y)
        if not strong:
            return value
        h_s, label = strong
        target = torch.stack([self.c[j] for j in label.tolist()])
        return value + self.consistency * (1 - cosine_similarity(h_s, target, eps=1e-6)).mean()

    def prototypes(self, t: int, i: int) -> Prototypes:
        """(14), of labelled and, with weight α, accepted samples; its norm() sets the class's last length."""
        means, last = super().prototypes(t, i), self.local.get(i, {})
        if t < self.semi:
            return means
        accepted, label = self.accepted[i]
        h_s, mixed = self.clients.extract(i, self.clients.strong_views(i, t)[accepted]), {}
        for j, mean in means.items():
            n, n_s = self.clients.count(i, j), (label == j).sum()
            p = (n * mean + self.alpha * h_s[label == j].sum(0)) / (n + self.alpha * n_s)
            mixed[j] = p / p.norm() * last.get(j, p).norm()
        return mixed


def margins(d: Tensor) -> Tensor:
    """Returns d(x, p') − d(x, p) of (11): second nearest minus nearest; infinite with a single class."""
    if d.shape[1] == 1:
        return torch.full((len(d),), torch.inf)
    nearest, second = d.sort(1).values[:, :2].T
    return second - nearest
