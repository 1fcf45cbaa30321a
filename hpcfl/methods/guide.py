"""The client's extra loss: features are drawn to the global prototype of their label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcfl.methods.prototypes import Prototypes


def mse(gap_BD: Tensor) -> Tensor:
    """Squared difference, mean over dimensions: what published code computes."""
    return gap_BD.square().mean(1)


def euclid(gap_BD: Tensor) -> Tensor:
    """Euclidean norm: ρ of ProtoNorm's Eq. (5). Its gradient at zero is taken as zero."""
    square_B = gap_BD.square().sum(1)
    apart_B = square_B > 0
    return torch.where(apart_B, square_B.where(apart_B, 1.0).sqrt(), 0.0)


def sq(gap_BD: Tensor) -> Tensor:
    """Squared norm, summed over dimensions."""
    return gap_BD.square().sum(1)


DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {"mse": mse, "euclid": euclid, "sq": sq}


@dataclass(frozen=True)
class Euclid:
    """λ times the mean distance of a batch to the targets of its labels: ProtoNorm Eq. (4), (5).

    The papers write the distance of prototypes; published code takes it per sample, and so does this.
    A sample whose label has no global prototype adds zero but stays in the mean's denominator.
    """

    weight: float
    distance: str

    def __call__(self, z_BD: Tensor, y_B: Tensor, target: Prototypes) -> Tensor:
        gap_BD = z_BD - target.value_KD[y_B]
        apart_B = DISTANCES[self.distance](gap_BD)
        return self.weight * torch.where(target.present_K[y_B], apart_B, 0.0).mean()
