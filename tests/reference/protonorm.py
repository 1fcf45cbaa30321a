"""ProtoNorm (Lee et al.): FedProto with prototype alignment and upscaling. Equations as there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.reference.federation import Federation
from tests.reference.fedproto import FedProto, Prototypes

FIRST = {"tangent": 10, "whole": 11}
"""The first iteration, from 0, whose force is compared with that of the one before."""


class ProtoNorm(FedProto):
    """Prototypes of length 1, moved apart on the sphere; clients align to γ times these, (15)."""

    def __init__(self, clients: Federation, *, distance: str = "mse", scale: float = 100.0, **options: Any):
        solver = ("iterations", "stopping", "solver_")
        self.solver = {name: options.pop(name) for name in [*options] if name.startswith(solver)}
        if distance == "euclid":
            options = {"weight": 1.0} | options  # Sect. 5.1
        super().__init__(clients, distance=distance, scale=scale, **options)

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        means = super().server(t, uploads)  # (7)
        c = torch.stack([*means.values()]).double()
        c, self.logged["/refine/iterations"] = align(c, **self.solver)
        return dict(zip(means, c, strict=True))


def align(
    c: Tensor,
    iterations: int = 500,
    stopping: str = "tangent",
    solver_lr: float = 0.1,
    solver_momentum: float = 0.9,
    solver_decay: float = 0.95,
    solver_decay_every: int = 10,
    solver_patience: int = 10,
) -> tuple[Tensor, int]:
    """Algorithm 1, and its iterations; it ends when the mean force, to 4 decimals, stays the same.

    `tangent` takes the force along the sphere, `whole` the force itself, as published code does.
    """
    c, v, means = c / c.norm(dim=1, keepdim=True), torch.zeros_like(c), []
    for n in range(iterations):
        difference = c[:, None] - c
        square = difference.square().sum(2, keepdim=True)
        force = (difference / square.where(square > 0, 1)).sum(1)  # (11)
        along = force - (force * c).sum(1, keepdim=True) * c
        means.append(round((along if stopping == "tangent" else force).norm(dim=1).mean().item(), 4))
        eta = solver_lr * solver_decay ** (n // solver_decay_every)
        v = solver_momentum * v + eta * force  # (12)
        c = (c + v) / (c + v).norm(dim=1, keepdim=True)  # (13), (14)
        same = len(set(means[-solver_patience - 1 :])) == 1
        if same and n - solver_patience + 1 >= FIRST[stopping]:
            break
    return c, len(means)
