"""Inference by the nearest prototype."""

from __future__ import annotations

from torch import Tensor, cdist, inf

from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.sphere import normalise
from hpcfl.utils.accelerator import in_float64


def nearest_N(z_ND: Tensor, prototypes: Prototypes, by_angle: bool = False) -> Tensor:
    """Returns the class of the nearest prototype, ProtoNorm Eq. (6); absent classes are never chosen.

    `by_angle` uses cosines, in float64 because float32 cannot tell collapsed features apart; otherwise the
    Euclidean distance. Without any prototype all results are −1.
    """
    if by_angle:
        distance_NK = -normalise(in_float64(z_ND)) @ normalise(in_float64(prototypes.value_KD)).T
    else:
        distance_NK = cdist(z_ND, prototypes.value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    return _nearest(distance_NK, prototypes)


def nearest_masked_N(z_ND: Tensor, prototypes: Prototypes, mask_KD: Tensor, by_angle: bool = False) -> Tensor:
    """Returns `nearest_N` where the distance to a class counts only the dimensions of its mask."""
    z_ND, mask_KD = in_float64(z_ND), in_float64(mask_KD)
    value_KD = in_float64(prototypes.value_KD) * mask_KD  # local prototypes are dense
    square_NK = z_ND.square() @ mask_KD.T  # ‖m_j ⊙ z‖²
    product_NK = z_ND @ value_KD.T
    if by_angle:
        distance_NK = -product_NK / (square_NK.sqrt() * value_KD.norm(dim=1)).clamp_min(1e-300)
    else:
        distance_NK = square_NK - 2 * product_NK + value_KD.square().sum(1)
    return _nearest(distance_NK, prototypes)


def _nearest(distance_NK: Tensor, prototypes: Prototypes) -> Tensor:
    """Returns the class with the least distance among those present; −1 if none is."""
    present_K = prototypes.present_K.to(distance_NK.device)
    nearest_N = distance_NK.masked_fill(~present_K, inf).argmin(1)
    return nearest_N.masked_fill_(~present_K.any(), -1).to(prototypes.value_KD.device)


def num_correct(predicted_N: Tensor, y_N: Tensor) -> Tensor:
    """Returns the number of correct predictions."""
    return (predicted_N == y_N).sum()
