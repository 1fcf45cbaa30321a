"""What is measured on global prototypes after every round."""

from __future__ import annotations

from typing import Any

import torch

from hpcfl.methods.prototypes import Prototypes, margin_K
from hpcfl.methods.sphere import distances, energy, normalise, simplex_bound


def least_mean_most(values: torch.Tensor) -> list[float]:
    """Returns minimum, mean and maximum; NaN where there are no values."""
    if not len(values):
        return [float("nan")] * 3
    return [values.min().item(), values.mean().item(), values.max().item()]


def measures(prototypes: Prototypes) -> dict[str, Any]:
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
        "distance": least_mean_most(distances(value_KD[present_K])),
        "cosine": least_mean_most(1 - chord.square() / 2),
        "energy": energy(unit_PD).item() if pairs else torch.nan,
        "energy_bound": simplex_bound(len(unit_PD)),
        "unreachable": torch.where(present_K & (length_K > 0), below_K, torch.nan),
    }
