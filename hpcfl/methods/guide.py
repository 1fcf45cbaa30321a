"""The client's extra loss: features are drawn to the global prototype of their label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hpcfl.methods.prototypes import Prototypes


def mse(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Squared difference, mean over dimensions: what published code computes."""
    return (z_BD - target_BD).square().mean(1)


def euclid(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Euclidean norm: ρ of ProtoNorm's Eq. (5). Its gradient at zero is taken as zero."""
    square_B = sq(z_BD, target_BD)
    apart_B = square_B > 0
    return torch.where(apart_B, square_B.where(apart_B, 1.0).sqrt(), 0.0)


def sq(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Squared norm, summed over dimensions."""
    return (z_BD - target_BD).square().sum(1)


def cosine(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """One minus the cosine: L_R of FedORGP's Eq. (8). Below a length of 1e-6 gradients stay finite."""
    return 1 - (normalize(z_BD, eps=1e-6) * normalize(target_BD, eps=1e-6)).sum(1)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": mse,
    "euclid": euclid,
    "sq": sq,
    "cosine": cosine,
}


@dataclass(frozen=True)
class Guide:
    """λ times the mean distance of a batch to the targets of its labels: ProtoNorm (4), (5), FedORGP (8).

    The papers on Euclidean distance write that of prototypes; published code takes it per sample, and so does
    this. A sample whose label has no global prototype adds zero but stays in the mean's denominator.
    """

    weight: float
    distance: str

    def __call__(self, z_BD: Tensor, y_B: Tensor, target: Prototypes) -> Tensor:
        apart_B = DISTANCES[self.distance](z_BD, target.value_KD[y_B])
        return self.weight * torch.where(target.present_K[y_B], apart_B, 0.0).mean()
