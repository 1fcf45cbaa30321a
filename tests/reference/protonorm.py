"""ProtoNorm (Lee et al.): FedProto with prototype alignment and upscaling. Equations as there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.reference.federation import Federation
from tests.reference.fedproto import FedProto, Prototypes

LAST = {"tangent": 19, "whole": 20}
"""The first iteration, from 0, that may be the last; `whole` is the rule of published code."""


class ProtoNorm(FedProto):
    """Prototypes of length 1, moved apart on the sphere; clients align to γ times these, (15)."""

    def __init__(
        self,
        clients: Federation,
        *,
        distance: str = "mse",
        scale: float = 100.0,
        iterations: int = 500,
        stopping: str = "tangent",
        **options: Any,
    ):
        if distance == "euclid":
            options = {"weight": 1.0} | options  # Sect. 5.1
        super().__init__(clients, distance=distance, scale=scale, **options)
        self.iterations, self.stopping = iterations, stopping

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        means = super().server(t, uploads)  # (7)
        c = torch.stack([*means.values()]).double()
        c, self.logged["/refine/iterations"] = align(c, self.iterations, self.stopping)
        return dict(zip(means, c, strict=True))


def align(c: Tensor, iterations: int, stopping: str) -> tuple[Tensor, int]:
    """Algorithm 1, and its iterations; it ends when the mean force, to 4 decimals, stays the same 10 times.

    `tangent` takes the force along the sphere, `whole` the force itself.
    """
    c, v, means = c / c.norm(dim=1, keepdim=True), torch.zeros_like(c), []
    for n in range(iterations):
        difference = c[:, None] - c
        square = difference.square().sum(2, keepdim=True)
        force = (difference / square.where(square > 0, 1)).sum(1)  # (11)
        along = force - (force * c).sum(1, keepdim=True) * c
        means.append(round((along if stopping == "tangent" else force).norm(dim=1).mean().item(), 4))
        v = 0.9 * v + 0.1 * 0.95 ** (n // 10) * force  # (12), with Sect. 5.1
        c = (c + v) / (c + v).norm(dim=1, keepdim=True)  # (13), (14)
        if n >= LAST[stopping] and len(set(means[-11:])) == 1:
            break
    return c, len(means)
