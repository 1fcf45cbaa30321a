"""Prototypes: one feature vector per class, their computation from features, and their margins."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcfl.exchange.payload import ClassRows

Prototypes = ClassRows
"""The prototypes of a client or of the server: class rows of features."""


class ClassMeans:
    """Accumulates features per class, in float64: c_ij = 1/n_ij Σ f_i(x), ProtoNorm Eq. (2)."""

    def __init__(self, classes: int, features: int, device: torch.device | str = "cpu"):
        self.sum_KD = torch.zeros(classes, features, dtype=torch.float64, device=device)
        self.count_K = torch.zeros(classes, dtype=torch.float64, device=device)
        self.nonzero_KD = torch.zeros(classes, features, device=device)

    def add(self, z_BD: Tensor, y_B: Tensor) -> None:
        """Adds the features of labelled samples."""
        self.add_weighted(z_BD, y_B, 1.0)
        self.nonzero_KD.index_add_(0, y_B, (z_BD.detach() != 0).float())

    def add_weighted(self, z_BD: Tensor, y_B: Tensor, weight: float) -> None:
        """Adds features with a weight: FedSAP Eq. (14) before its `norm`."""
        self.sum_KD.index_add_(0, y_B, z_BD.detach().double(), alpha=weight)
        self.count_K += weight * torch.bincount(y_B, minlength=len(self.count_K))

    def prototypes(self) -> Prototypes:
        """Returns the mean of the added features of every class."""
        present_K = self.count_K > 0
        value_KD = self.sum_KD / self.count_K.where(present_K, 1.0)[:, None]
        return Prototypes(value_KD.float(), present_K)

    def dead_K(self) -> Tensor:
        """Returns the share of features that are 0 for all labelled samples of a class; NaN without any."""
        seen_K = self.nonzero_KD.any(1) | (self.count_K > 0)
        return (self.nonzero_KD == 0).double().mean(1).where(seen_K, torch.nan)


def margin_K(prototypes: Prototypes) -> Tensor:
    """Returns the distance of each class to the nearest other one (FedTGP, Fig. 1); NaN if there is none."""
    value_KD, present_K = prototypes.value_KD.double(), prototypes.present_K
    distance_KK = torch.cdist(value_KD, value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    distance_KK[:, ~present_K] = torch.inf
    distance_KK.fill_diagonal_(torch.inf)
    nearest_K = distance_KK.min(1).values
    return torch.where(present_K & nearest_K.isfinite(), nearest_K, torch.nan)
