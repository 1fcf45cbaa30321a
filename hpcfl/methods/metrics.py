"""Metrics of prototypes, features and heads after every round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.prototypes import Prototypes, margin_K
from hpcfl.methods.sphere import distances, energy, normalise, simplex_bound
from hpcfl.utils.accelerator import in_float64, to_device


def min_mean_max(values: Tensor) -> list[float]:
    """Returns minimum, mean and maximum; NaN where there are no values."""
    if not len(values):
        return [float("nan")] * 3
    return [values.min().item(), values.mean().item(), values.max().item()]


def silhouette(z_ND: Tensor, y_N: Tensor) -> Tensor:
    """Returns the mean silhouette coefficient by cosine distance; NaN with fewer than two classes.

    The labels are on the host: what depends on them is found there, and nothing waits for a device.

    The mean cosine distance to a class is 1 − u·(mean of its unit vectors), so no N×N matrix is needed. A
    sample that is alone in its class counts 0, as is usual.
    """
    classes_C, class_N = y_N.unique(return_inverse=True)
    if len(classes_C) < 2:
        return torch.tensor(torch.nan, dtype=torch.float64)
    unit_ND = normalise(in_float64(z_ND))
    size_C = to_device(torch.bincount(class_N).double(), unit_ND.device)
    class_N = to_device(class_N, unit_ND.device)
    mean_CD = torch.zeros(len(classes_C), z_ND.shape[1], dtype=torch.float64, device=unit_ND.device)
    mean_CD = mean_CD.index_add_(0, class_N, unit_ND) / size_C[:, None]
    distance_NC = 1 - unit_ND @ mean_CD.T
    size_N, own_N = size_C[class_N], distance_NC.gather(1, class_N[:, None])[:, 0]
    self_N = 1 - unit_ND.square().sum(1)
    own_N = (size_N * own_N - self_N) / (size_N - 1).clamp_min(1)
    other_N = distance_NC.scatter(1, class_N[:, None], torch.inf).min(1).values
    score_N = (other_N - own_N) / torch.maximum(other_N, own_N).clamp_min(1e-12)
    return score_N.where(size_N > 1, 0.0).mean()


def personalisation(norm_MK: np.ndarray, count_MK: np.ndarray) -> float:
    """Returns the distance between the norms of head weights per class and the class counts; 0: proportional.

    The sparse-prototype paper's Fig. 3: both are scaled to 0 … 1 per client, then the Frobenius norm of their
    difference. Clients that have not trained yet are left out; NaN if none has.
    """
    trained_M = np.isfinite(norm_MK).all(1)
    if not trained_M.any():
        return float("nan")
    difference_MK = _min_max(norm_MK[trained_M]) - _min_max(count_MK[trained_M].astype(float))
    return math.sqrt(math.fsum(np.square(difference_MK).flat))  # BLAS's norm differs between CPU models


def _min_max(value_MK: np.ndarray) -> np.ndarray:
    """Returns every row scaled to 0 … 1."""
    low_M1 = value_MK.min(1, keepdims=True)
    width_M1 = np.ptp(value_MK, axis=1, keepdims=True)
    return (value_MK - low_M1) / np.where(width_M1 > 0, width_M1, 1)


def prototype_metrics(prototypes: Prototypes) -> dict[str, Any]:
    """Returns margins, pairwise distances and cosines, energy and its bound, and the unreachable share.

    Margins are FedTGP's (Fig. 1), normalised by the largest as in ProtoNorm's Fig. 5. Energy is ProtoNorm's
    Eq. (10), of directions. The unreachable share of a class is ‖min(c, 0)‖²/‖c‖², which features after a
    ReLU cannot reach. Zero prototypes have no direction and are left out.
    """
    value_KD, present_K = prototypes.value_KD.double(), prototypes.present_K
    length_K = value_KD.norm(dim=1)
    margins_K = margin_K(prototypes)
    largest = margins_K[~margins_K.isnan()].max() if (~margins_K.isnan()).any() else torch.nan
    unit_PD = normalise(value_KD[present_K & (length_K > 0)])
    pairs = len(unit_PD) > 1
    unreachable_K = value_KD.clamp_max(0).square().sum(1) / length_K.square()
    chords = distances(unit_PD)
    return {
        "margin": margins_K,
        "margin_normalised": margins_K / largest if largest else margins_K * torch.nan,
        "distance": min_mean_max(distances(value_KD[present_K])),
        "cosine": min_mean_max(1 - chords.square() / 2),
        "energy": energy(unit_PD).item() if pairs else torch.nan,
        "energy_bound": simplex_bound(len(unit_PD)),
        "unreachable": torch.where(present_K & (length_K > 0), unreachable_K, torch.nan),
    }
