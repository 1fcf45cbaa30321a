"""Which class a feature vector belongs to, and how often that is right."""

from __future__ import annotations

from torch import Tensor, cdist, inf

from hpcfl.methods.prototypes import Prototypes


def nearest_N(z_ND: Tensor, prototypes: Prototypes) -> Tensor:
    """Returns the class of the nearest prototype, ProtoNorm Eq. (6); an absent one is infinitely far."""
    apart_NK = cdist(z_ND, prototypes.value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    return apart_NK.masked_fill(~prototypes.present_K, inf).argmin(1)


def right(predicted_N: Tensor, y_N: Tensor) -> int:
    """Returns the number of correct predictions."""
    return int((predicted_N == y_N).sum())
