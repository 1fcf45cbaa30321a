"""Unit vectors (directions) on the sphere: ProtoNorm's energy, its lower bound, and the forces."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcfl.methods.prototypes import Prototypes
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device, to_host

EPS = 1e-12
SAME_COSINE = 1 - EPS
"""From this cosine on, two directions count as equal."""


def normalise(value_KD: Tensor) -> Tensor:
    """Returns the rows scaled to length 1; a zero row stays zero."""
    return value_KD / value_KD.norm(dim=1, keepdim=True).clamp_min(1e-300)


def keyed_direction(seed: int, k: int, features: int, mask_KD: Tensor | None = None) -> Tensor:
    """Returns a random direction that depends on seed and class k alone, within the mask of the class."""
    random_D = torch.from_numpy(seeds.generator(seed, "direction", k).standard_normal(features))
    if mask_KD is not None:
        random_D = random_D * mask_KD[k].cpu()
    return random_D / random_D.norm()


def directions(
    new: Prototypes, last: Prototypes, seed: int, mask_KD: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the unit vectors of the present classes, in float64, and these classes.

    A zero prototype, or one with the direction of another class, gets its last direction if that is unique,
    else a keyed one.
    """
    unit_KD, last_KD = normalise(new.value_KD.double()), normalise(last.value_KD.double())
    cosine_KK = (unit_KD @ unit_KD.T).tril(-1)  # absent rows are zero
    bad_K = ((cosine_KK >= SAME_COSINE).any(1) | ~unit_KD.any(1)) & new.present_K
    present_K, bad_K = to_host(new.present_K, bad_K)
    classes, class_P = present_K.nonzero()[:, 0], to_device(present_K.nonzero()[:, 0], unit_KD.device)
    for k in bad_K.nonzero()[:, 0].tolist():
        keyed_D = keyed_direction(seed, k, unit_KD.shape[1], mask_KD).to(unit_KD.device)
        other_PD = unit_KD[to_device(classes[classes != k], unit_KD.device)]
        unique = bool(last_KD[k].any()) and not bool((other_PD @ last_KD[k] >= SAME_COSINE).any())
        unit_KD[k] = last_KD[k] if unique else keyed_D
    return unit_KD[class_P], class_P


def distances(unit_PD: Tensor) -> Tensor:
    """Returns the P(P − 1)/2 pairwise distances of the rows."""
    return torch.nn.functional.pdist(unit_PD)


def energy(unit_PD: Tensor) -> Tensor:
    """Returns E = Σ_{j<k} log 1/‖c_j − c_k‖, ProtoNorm Eq. (10)."""
    return -distances(unit_PD).log().sum()


def simplex_bound(classes: int) -> float:
    """Returns the least energy of P unit vectors in any dimension: that of the regular simplex.

    Its pairwise distances are √(2P/(P − 1)). By Jensen's inequality no energy is lower, since the squared
    distances of P unit vectors sum to at most P².
    """
    if classes < 2:
        return math.nan
    return -classes * (classes - 1) / 4 * math.log(2 * classes / (classes - 1))


def force(unit_PD: Tensor) -> Tensor:
    """Returns F_j = Σ_k (c_j − c_k)/‖c_j − c_k‖², ProtoNorm Eq. (11), by the Gram matrix.

    For unit vectors ‖c_j − c_k‖² = 2 − 2 c_j·c_k, so no P×P×D tensor of differences is needed.
    """
    inverse_PP = 1 / (2 - 2 * unit_PD @ unit_PD.T).clamp_min(EPS)
    inverse_PP.fill_diagonal_(0)
    return inverse_PP.sum(1, keepdim=True) * unit_PD - inverse_PP @ unit_PD


def tangent(force_PD: Tensor, unit_PD: Tensor) -> Tensor:
    """Returns the part of each force tangential to the sphere; the radial part is (P − 1)/2 outward."""
    return force_PD - (force_PD * unit_PD).sum(1, keepdim=True) * unit_PD
