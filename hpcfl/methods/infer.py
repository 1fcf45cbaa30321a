"""Inference by the nearest prototype."""

from __future__ import annotations

from torch import Tensor, cdist, full, full_like, inf

from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.sphere import normalise


def nearest_N(z_ND: Tensor, prototypes: Prototypes, by_angle: bool = False) -> Tensor:
    """Returns the class of the nearest prototype, ProtoNorm Eq. (6); absent classes are never chosen.

    `by_angle` uses cosines, in float64 because float32 cannot tell collapsed features apart; otherwise the
    Euclidean distance. Without any prototype all results are −1.
    """
    if not prototypes.present_K.any():
        return full((len(z_ND),), -1, device=z_ND.device)
    if by_angle:
        distance_NK = -normalise(z_ND.double()) @ normalise(prototypes.value_KD.double()).T
    else:
        distance_NK = cdist(z_ND, prototypes.value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    return distance_NK.masked_fill(~prototypes.present_K, inf).argmin(1)


def nearest_masked_N(z_ND: Tensor, prototypes: Prototypes, mask_KD: Tensor, by_angle: bool = False) -> Tensor:
    """Returns `nearest_N` where the distance to a class counts only the dimensions of its mask."""
    z_ND, mask_KD = z_ND.double(), mask_KD.double()
    value_KD = prototypes.value_KD.double() * mask_KD  # local prototypes are dense
    square_NK = z_ND.square() @ mask_KD.T  # ‖m_j ⊙ z‖²
    product_NK = z_ND @ value_KD.T
    if by_angle:
        distance_NK = -product_NK / (square_NK.sqrt() * value_KD.norm(dim=1)).clamp_min(1e-300)
    else:
        distance_NK = square_NK - 2 * product_NK + value_KD.square().sum(1)
    nearest = distance_NK.masked_fill(~prototypes.present_K, inf).argmin(1)
    return nearest if prototypes.present_K.any() else full_like(nearest, -1)


def num_correct(predicted_N: Tensor, y_N: Tensor) -> int:
    """Returns the number of correct predictions."""
    return int((predicted_N == y_N).sum())
