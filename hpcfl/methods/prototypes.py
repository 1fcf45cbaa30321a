"""Prototypes: one feature vector per class, their computation from features, and their margins."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcfl.exchange.payload import ClassRows
from hpcfl.utils.accelerator import in_float64, with_float64

Prototypes = ClassRows
"""The prototypes of a client or of the server: class rows of features."""


class ClassMeans:
    """Accumulates features per class, in float64: c_ij = 1/n_ij Σ f_i(x), ProtoNorm Eq. (2)."""

    def __init__(self, classes: int, features: int, device: torch.device | str = "cpu"):
        self.device, sums_on = torch.device(device), with_float64(torch.device(device))
        self.sum_KD = torch.zeros(classes, features, dtype=torch.float64, device=sums_on)
        self.count_K = torch.zeros(classes, dtype=torch.float64, device=sums_on)
        self.nonzero_KD = torch.zeros(classes, features, device=device)

    def add(self, z_BD: Tensor, y_B: Tensor) -> None:
        """Adds the features of labelled samples."""
        self.add_weighted(z_BD, y_B, 1.0)
        self.nonzero_KD.index_add_(0, y_B, (z_BD.detach() != 0).float())

    def add_weighted(self, z_BD: Tensor, y_B: Tensor, weight: float) -> None:
        """Adds features with a weight: FedSAP Eq. (14) before its `norm`."""
        y_B = y_B.to(self.sum_KD.device)
        self.sum_KD.index_add_(0, y_B, in_float64(z_BD.detach()), alpha=weight)
        in_batch_K = torch.zeros_like(self.count_K, dtype=torch.int64)
        self.count_K += weight * in_batch_K.index_add_(0, y_B, torch.ones_like(y_B))

    def prototypes(self) -> Prototypes:
        """Returns the mean of the added features of every class."""
        present_K = self.count_K > 0
        value_KD = self.sum_KD / self.count_K.where(present_K, 1.0)[:, None]
        return Prototypes(value_KD.float().to(self.device), present_K.to(self.device))

    def dead_K(self) -> Tensor:
        """Returns the share of features that are 0 for all labelled samples of a class; NaN without any."""
        nonzero_KD = self.nonzero_KD.to(self.count_K.device)
        seen_K = nonzero_KD.any(1) | (self.count_K > 0)
        return (nonzero_KD == 0).double().mean(1).where(seen_K, torch.nan)


def margin_K(prototypes: Prototypes) -> Tensor:
    """Returns the distance of each class to the nearest other one (FedTGP, Fig. 1); NaN if there is none."""
    value_KD = in_float64(prototypes.value_KD)
    present_K = prototypes.present_K.to(value_KD.device)
    distance_KK = torch.cdist(value_KD, value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    distance_KK[:, ~present_K] = torch.inf
    distance_KK.fill_diagonal_(torch.inf)
    nearest_K = distance_KK.min(1).values
    return torch.where(present_K & nearest_K.isfinite(), nearest_K, torch.nan)
