"""hpcfl's own refinements: the nearest regular simplex, and non-negative orthogonal anchors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from tests.reference.federation import Federation
from tests.reference.fedproto import FedProto, Prototypes


class Simplex(FedProto):
    """Directions of the means, replaced by those of the nearest regular simplex; distances are 1 − cos."""

    def __init__(self, clients: Federation, *, anchor: str = "round", **options: Any):
        super().__init__(clients, distance="cosine", **options)
        self.fixed = anchor != "round"
        if anchor == "seed":  # nothing is ever exchanged
            self.c = self.refine(self.complete({}))

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        if self.fixed and self.c:
            return self.c
        means = super().server(t, uploads)
        return self.refine(self.complete(means) if self.fixed else means)

    def complete(self, means: Prototypes) -> Prototypes:
        """A class that is absent when prototypes are fixed gets a random direction."""
        return self.random() | means

    def refine(self, means: Prototypes) -> Prototypes:
        return {j: c.float() for j, c in zip(means, self.place(unit(means)), strict=True)}

    def place(self, u: Tensor) -> Tensor:
        """Σ u_j·s_j is largest if s is, up to length, the orthogonal factor of u − mean(u): Procrustes."""
        left, _, right = torch.linalg.svd(u - u.mean(0), full_matrices=False)
        s = left[:, : len(u) - 1] @ right[: len(u) - 1]
        return s / s.norm(dim=1, keepdim=True)


class Anchor(Simplex):
    """Every class owns d/K dimensions, rounded down or up, that its mean prefers; absent ones take any."""

    def __init__(self, clients: Federation, *, anchor: str = "first", **options: Any):
        super().__init__(clients, anchor=anchor, **options)

    def complete(self, means: Prototypes) -> Prototypes:
        return means or super().complete(means)

    def refine(self, means: Prototypes) -> Prototypes:
        """Maximises Σ u_jk x_jk: a transport problem, whose solutions x are 0 or 1."""
        classes, d = self.clients.classes, self.clients.features
        u = np.zeros((classes, d))
        u[[*means]] = unit(means)
        per_class, per_dimension = np.kron(np.eye(classes), np.ones(d)), np.kron(np.ones(classes), np.eye(d))
        least, most = np.full(classes, d // classes), np.full(classes, -(-d // classes))
        x = linprog(
            -u.ravel(),
            A_ub=np.concatenate([per_class, -per_class]),
            b_ub=np.concatenate([most, -least]),
            A_eq=per_dimension,
            b_eq=np.ones(d),
            bounds=(0, 1),
        ).x.reshape(classes, d)
        return {j: torch.from_numpy(row / np.linalg.norm(row)).float() for j, row in enumerate(x)}


def unit(c: Prototypes) -> Tensor:
    """Returns the directions, in float64."""
    value = torch.stack([*c.values()]).double()
    return value / value.norm(dim=1, keepdim=True)
