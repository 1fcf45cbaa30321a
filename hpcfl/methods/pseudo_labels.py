"""FedSAP's semi-supervised phase: labels for unlabelled samples from the global prototypes, Eq. (10)-(14)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hpcfl.methods.prototypes import Prototypes


@dataclass(frozen=True)
class PseudoLabels:
    """Of every sample: the nearest prototype's class, its distance, and how much farther the next is."""

    class_N: Tensor
    distance_N: Tensor
    margin_N: Tensor


def cosine_distance(z_ND: Tensor, prototypes: Prototypes) -> Tensor:
    """Returns 1 − cos(z, p_c) in float64, [N, K]; infinite where a class has no prototype."""
    apart_NK = 1 - normalize(z_ND.double()) @ normalize(prototypes.value_KD.double()).T
    return apart_NK.masked_fill(~prototypes.present_K, torch.inf)


def pseudo_labels(z_ND: Tensor, prototypes: Prototypes) -> PseudoLabels:
    """Returns Eq. (10) and both sides of (11); with a single prototype the margin is infinite."""
    near_NC, class_NC = cosine_distance(z_ND, prototypes).sort(dim=1, stable=True)
    second_N = near_NC[:, 1] if near_NC.shape[1] > 1 else torch.full_like(near_NC[:, 0], torch.inf)
    return PseudoLabels(class_NC[:, 0], near_NC[:, 0], second_N - near_NC[:, 0])


def thresholds(
    z_ND: Tensor, y_N: Tensor, prototypes: Prototypes, margin_quantile: float, distance_quantile: float
) -> Tensor:
    """Returns M and D_max of Eq. (11) from labelled samples; NaN, which accepts nothing, without any.

    The paper leaves the calibration open: quantiles of the margins (11) and of the true-class distances.
    """
    known_N = prototypes.present_K[y_N]
    if not known_N.any():
        return torch.full((2,), torch.nan, dtype=torch.float64, device=z_ND.device)
    z_ND, y_N = z_ND[known_N], y_N[known_N]
    margin_N = pseudo_labels(z_ND, prototypes).margin_N
    true_N = cosine_distance(z_ND, prototypes).gather(1, y_N[:, None])[:, 0]
    return torch.stack([margin_N.quantile(margin_quantile), true_N.quantile(distance_quantile)])


def accept(found: PseudoLabels, thresholds_2: Tensor) -> Tensor:
    """Returns which samples are accepted, Eq. (11): margin > M and distance < D_max."""
    return (found.margin_N > thresholds_2[0]) & (found.distance_N < thresholds_2[1])


def with_last_length(mixed: Prototypes, last: Prototypes) -> Prototypes:
    """Returns Eq. (14)'s directions with the last prototypes' lengths, or their own where there is none.

    The paper normalises; alignment and inference here compare raw features, which have a length.
    """
    before_K = last.value_KD.norm(dim=1)
    length_K = torch.where(last.present_K & (before_K > 0), before_K, mixed.value_KD.norm(dim=1))
    return Prototypes(normalize(mixed.value_KD) * length_K[:, None], mixed.present_K)
