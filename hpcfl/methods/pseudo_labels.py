"""FedSAP's pseudo-labels: classes of unlabelled samples by the global prototypes, Eq. (10)-(14)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hpcfl.methods.prototypes import Prototypes
from hpcfl.utils.accelerator import in_float64


@dataclass(frozen=True)
class PseudoLabels:
    """Per sample: class and distance of the nearest prototype, and the margin to the second nearest."""

    class_N: Tensor
    distance_N: Tensor
    margin_N: Tensor


def cosine_distance(z_ND: Tensor, prototypes: Prototypes) -> Tensor:
    """Returns 1 − cos(z, p_c) in float64, [N, K]; infinite where a class has no prototype."""
    distance_NK = 1 - normalize(in_float64(z_ND)) @ normalize(in_float64(prototypes.value_KD)).T
    return distance_NK.masked_fill(~prototypes.present_K.to(distance_NK.device), torch.inf)


def pseudo_labels(z_ND: Tensor, prototypes: Prototypes) -> PseudoLabels:
    """Returns Eq. (10) and the distance and margin of (11); with a single class the margin is infinite."""
    distance_NK, class_NK = cosine_distance(z_ND, prototypes).sort(dim=1, stable=True)
    nearest_N = distance_NK[:, 0]
    second_N = distance_NK[:, 1] if distance_NK.shape[1] > 1 else torch.full_like(nearest_N, torch.inf)
    return PseudoLabels(class_NK[:, 0], nearest_N, second_N - nearest_N)


def thresholds(
    z_ND: Tensor, y_N: Tensor, prototypes: Prototypes, margin_quantile: float, distance_quantile: float
) -> Tensor:
    """Returns M and D_max of Eq. (11) from labelled samples; NaN, which accepts nothing, without samples.

    The paper leaves the calibration open; here they are quantiles of the margins and of the distances to the
    prototype of the true class.
    """
    present_N = prototypes.present_K[y_N]
    if not present_N.any():
        return torch.full((2,), torch.nan, dtype=torch.float64, device=z_ND.device)
    z_ND, y_N = z_ND[present_N], y_N[present_N]
    margin_N = pseudo_labels(z_ND, prototypes).margin_N
    true_N = cosine_distance(z_ND, prototypes).gather(1, y_N[:, None])[:, 0]
    return torch.stack([margin_N.quantile(margin_quantile), true_N.quantile(distance_quantile)])


def accept(labels: PseudoLabels, thresholds_2: Tensor) -> Tensor:
    """Returns which samples are accepted, Eq. (11): margin > M and distance < D_max."""
    return (labels.margin_N > thresholds_2[0]) & (labels.distance_N < thresholds_2[1])


def with_last_length(mixed: Prototypes, last: Prototypes) -> Prototypes:
    """Returns Eq. (14)'s directions with the length of the last prototypes, else with their own length.

    The paper normalises to length 1; alignment and inference here use features that are not normalised.
    """
    last_length_K = last.value_KD.norm(dim=1)
    length_K = torch.where(last.present_K & (last_length_K > 0), last_length_K, mixed.value_KD.norm(dim=1))
    return Prototypes(normalize(mixed.value_KD) * length_K[:, None], mixed.present_K)
