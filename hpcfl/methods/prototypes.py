"""Class vectors and what is measured on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Class vectors of one party; `present_K` is False where it has none (its row is then zero)."""

    value_KD: Tensor
    present_K: Tensor

    @staticmethod
    def none(classes: int, features: int) -> Prototypes:
        """Returns prototypes of which no class is present."""
        return Prototypes(torch.zeros(classes, features), torch.zeros(classes, dtype=torch.bool))

    def equals(self, other: Prototypes) -> bool:
        """Says whether both are the same, bit for bit."""
        return torch.equal(self.present_K, other.present_K) and torch.equal(self.value_KD, other.value_KD)

    @property
    def finite(self) -> bool:
        return bool(self.value_KD.isfinite().all())

    def to(self, device: torch.device) -> Prototypes:
        return Prototypes(self.value_KD.to(device), self.present_K.to(device))


class ClassMeans:
    """Adds up features by class; Eq. (2) of ProtoNorm's paper: c_ij = 1/n_ij Σ f_i(x), in float64."""

    def __init__(self, classes: int, features: int, device: torch.device | str = "cpu"):
        self.sum_KD = torch.zeros(classes, features, dtype=torch.float64, device=device)
        self.count_K = torch.zeros(classes, dtype=torch.float64, device=device)
        self.used_KD = torch.zeros(classes, features, device=device)

    def add(self, z_BD: Tensor, y_B: Tensor) -> None:
        """Adds labelled samples."""
        self.mix(z_BD, y_B, 1.0)
        self.used_KD.index_add_(0, y_B, (z_BD.detach() != 0).float())

    def mix(self, z_BD: Tensor, y_B: Tensor, weight: float) -> None:
        """Adds samples of some weight: FedSAP Eq. (14) before its `norm`."""
        self.sum_KD.index_add_(0, y_B, z_BD.detach().double(), alpha=weight)
        self.count_K += weight * torch.bincount(y_B, minlength=len(self.count_K))

    def prototypes(self) -> Prototypes:
        present_K = self.count_K > 0
        value_KD = self.sum_KD / self.count_K.where(present_K, 1.0)[:, None]
        return Prototypes(value_KD.float(), present_K)

    def dead_K(self) -> Tensor:
        """Returns the share of units that are 0 for all labelled samples of a class; NaN without any."""
        seen_K = self.used_KD.any(1) | (self.count_K > 0)
        return (self.used_KD == 0).double().mean(1).where(seen_K, torch.nan)


def margin_K(prototypes: Prototypes) -> Tensor:
    """Returns each class's distance to the nearest other class (FedTGP, Fig. 1); NaN where there is none."""
    value_KD, present_K = prototypes.value_KD.double(), prototypes.present_K
    gap_KK = torch.cdist(value_KD, value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    gap_KK[:, ~present_K] = torch.inf
    gap_KK.fill_diagonal_(torch.inf)
    nearest_K = gap_KK.min(1).values
    return torch.where(present_K & nearest_K.isfinite(), nearest_K, torch.nan)
