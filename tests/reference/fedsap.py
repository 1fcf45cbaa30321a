"""FedSAP: FedProto with an alignment curriculum and a proxy term. Equations as there."""

from __future__ import annotations

from math import cos, exp, pi
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from tests.reference.federation import Federation
from tests.reference.fedproto import FedProto


def sigmoid(u: float) -> float:
    return 1 / (1 + exp(-10 * (u - 0.5)))


SHAPES = {
    "constant": lambda u: 1.0,
    "linear": lambda u: u,
    "cosine": lambda u: (1 - cos(pi * u)) / 2,
    "sigmoid": lambda u: (sigmoid(u) - sigmoid(0)) / (sigmoid(1) - sigmoid(0)),
    "step": lambda u: float(u >= 0.5),
}
"""App. A.1: how λ rises as u goes from 0 to 1."""


def cosines(z: Tensor, p: Tensor) -> Tensor:
    """Returns the cosine of every row of z with every row of p, (8)."""
    return cosine_similarity(z[:, None], p, dim=2, eps=1e-6)


class FedSap(FedProto):
    """CE + λ_t L_Proto + L_Proxy, (3)."""

    def __init__(
        self,
        clients: Federation,
        *,
        weight: float = 0.7,
        curriculum: str = "linear",
        curriculum_start: int = 20,
        curriculum_end: int = 100,
        proxy_scale: float = 32.0,
        **options: Any,
    ):
        super().__init__(clients, weight=weight, **options)
        self.shape, self.s = SHAPES[curriculum], proxy_scale
        self.start, self.end = curriculum_start, curriculum_end

    def weight_in(self, t: int) -> float:
        """λ_t, (7), with the start round of App. A; rounds count from 1 there."""
        return self.weight * self.shape(min(max((t + 1 - self.start) / (self.end - self.start), 0), 1))

    def loss(self, t: int, i: int, logits: Tensor, z: Tensor, y: Tensor, *strong: Tensor) -> Tensor | float:
        return super().loss(t, i, logits, z, y) + self.proxy(z, y)

    def proxy(self, z: Tensor, y: Tensor) -> Tensor | float:
        """L_Proxy, (9), over the classes that have a prototype; a label without one adds 0."""
        classes = sorted(self.c)
        known = [b for b, j in enumerate(y.tolist()) if j in classes]
        if not known:
            return 0.0
        logits = self.s * cosines(z[known], torch.stack([self.c[j] for j in classes]))
        label = torch.tensor([classes.index(j) for j in y[known].tolist()])
        return cross_entropy(logits, label, reduction="sum") / len(y)
