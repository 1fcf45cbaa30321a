"""Which class a feature vector belongs to, and how often that is right."""

from __future__ import annotations

from torch import Tensor, cdist, full, inf
from torch.nn.functional import normalize

from hpcfl.methods.prototypes import Prototypes


def nearest_N(z_ND: Tensor, prototypes: Prototypes, by_angle: bool = False) -> Tensor:
    """Returns the class of the nearest prototype, ProtoNorm Eq. (6); an absent one is infinitely far.

    `by_angle` compares directions alone. Where no prototype is present the answer is −1, which is no class.
    """
    if not prototypes.present_K.any():
        return full((len(z_ND),), -1, device=z_ND.device)
    if by_angle:
        apart_NK = 1 - normalize(z_ND) @ normalize(prototypes.value_KD).T
    else:
        apart_NK = cdist(z_ND, prototypes.value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    return apart_NK.masked_fill(~prototypes.present_K, inf).argmin(1)


def right(predicted_N: Tensor, y_N: Tensor) -> int:
    """Returns the number of correct predictions."""
    return int((predicted_N == y_N).sum())
