"""What is measured on prototypes, features and heads after every round."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.prototypes import Prototypes, margin_K
from hpcfl.methods.sphere import distances, energy, normalise, simplex_bound


def min_mean_max(values: Tensor) -> list[float]:
    """Returns minimum, mean and maximum; NaN where there are no values."""
    if not len(values):
        return [float("nan")] * 3
    return [values.min().item(), values.mean().item(), values.max().item()]


def silhouette(z_ND: Tensor, y_N: Tensor) -> float:
    """Returns the mean silhouette of samples in their classes by cosine distance; NaN below two classes.

    Cosine distances to all samples of a class average to 1 − u·(mean of its unit vectors), so no N×N table is
    needed. A sample that is alone in its class counts 0, as usual.
    """
    known_C, place_N = y_N.unique(return_inverse=True)
    if len(known_C) < 2:
        return float("nan")
    unit_ND = normalise(z_ND.double())
    size_C = torch.bincount(place_N).double()
    mean_CD = torch.zeros(len(known_C), z_ND.shape[1], dtype=torch.float64, device=z_ND.device)
    mean_CD = mean_CD.index_add_(0, place_N, unit_ND) / size_C[:, None]
    apart_NC = 1 - unit_ND @ mean_CD.T
    size_N, own_N = size_C[place_N], apart_NC.gather(1, place_N[:, None])[:, 0]
    itself_N = 1 - unit_ND.square().sum(1)
    own_N = (size_N * own_N - itself_N) / (size_N - 1).clamp_min(1)
    next_N = apart_NC.scatter(1, place_N[:, None], torch.inf).min(1).values
    score_N = (next_N - own_N) / torch.maximum(next_N, own_N).clamp_min(1e-12)
    return score_N.where(size_N > 1, 0.0).mean().item()


def personalisation(norm_MK: np.ndarray, count_MK: np.ndarray) -> float:
    """Returns how far the lengths of the heads' class weights are from the class counts; 0: proportional.

    The sparse-prototype paper's Fig. 3: both are brought to 0 … 1 by client, then the Frobenius norm of their
    difference. Clients that have not trained yet are left out; NaN where all are.
    """
    known_M = np.isfinite(norm_MK).all(1)
    if not known_M.any():
        return float("nan")
    return float(np.linalg.norm(_to_unit(norm_MK[known_M]) - _to_unit(count_MK[known_M].astype(float))))


def _to_unit(value_MK: np.ndarray) -> np.ndarray:
    low_M1 = value_MK.min(1, keepdims=True)
    width_M1 = np.ptp(value_MK, axis=1, keepdims=True)
    return (value_MK - low_M1) / np.where(width_M1 > 0, width_M1, 1)


def prototype_metrics(prototypes: Prototypes) -> dict[str, Any]:
    """Returns margins, distances and cosines of pairs, energy and its bound, and the unreachable share.

    Margins are FedTGP's (Fig. 1), normalised by the largest as in ProtoNorm's Fig. 5. Energy is ProtoNorm's
    Eq. (10), of directions. The unreachable share of a class is ‖min(c, 0)‖²/‖c‖²: features behind a ReLU
    cannot go there. Zero prototypes have no direction and are left out.
    """
    value_KD, present_K = prototypes.value_KD.double(), prototypes.present_K
    length_K = value_KD.norm(dim=1)
    apart_K = margin_K(prototypes)
    widest = apart_K[~apart_K.isnan()].max() if (~apart_K.isnan()).any() else torch.nan
    unit_PD = normalise(value_KD[present_K & (length_K > 0)])
    pairs = len(unit_PD) > 1
    below_K = value_KD.clamp_max(0).square().sum(1) / length_K.square()
    chord = distances(unit_PD)
    return {
        "margin": apart_K,
        "margin_normalised": apart_K / widest if widest else apart_K * torch.nan,
        "distance": min_mean_max(distances(value_KD[present_K])),
        "cosine": min_mean_max(1 - chord.square() / 2),
        "energy": energy(unit_PD).item() if pairs else torch.nan,
        "energy_bound": simplex_bound(len(unit_PD)),
        "unreachable": torch.where(present_K & (length_K > 0), below_K, torch.nan),
    }
