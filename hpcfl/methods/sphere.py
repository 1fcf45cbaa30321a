"""Directions on the unit sphere: their energy, the force between them, and its lower bound."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcfl.methods.prototypes import Prototypes
from hpcfl.utils import seeds

EPS = 1e-12
SAME = 1 - EPS
"""The cosine from which on two directions count as one."""


def normalise(value_KD: Tensor) -> Tensor:
    """Returns rows of unit length; a zero row stays zero."""
    return value_KD / value_KD.norm(dim=1, keepdim=True).clamp_min(1e-300)


def keyed_direction(seed: int, k: int, features: int, mask_KD: Tensor | None = None) -> Tensor:
    """Returns the direction that class k has by the seed alone, within its mask if there are masks."""
    drawn_D = torch.from_numpy(seeds.generator(seed, "direction", k).standard_normal(features))
    if mask_KD is not None:
        drawn_D = drawn_D * mask_KD[k].cpu()
    return drawn_D / drawn_D.norm()


def directions(new: Prototypes, last: Prototypes, seed: int, mask_KD: Tensor | None = None) -> Tensor:
    """Returns the unit vectors of the present classes, in float64.

    A zero prototype, and one that repeats another's direction, gets its last direction, else a keyed one.
    """
    unit_KD, before_KD = normalise(new.value_KD.double()), normalise(last.value_KD.double())
    of_P = new.present_K.nonzero()[:, 0].tolist()
    cosine_PP = (unit_KD[of_P] @ unit_KD[of_P].T).tril(-1)
    for p in ((cosine_PP >= SAME).any(1) | ~unit_KD[of_P].any(1)).nonzero()[:, 0].tolist():
        keyed_D = keyed_direction(seed, of_P[p], unit_KD.shape[1], mask_KD).to(unit_KD.device)
        others_PD = unit_KD[[k for k in of_P if k != of_P[p]]]
        told_D = before_KD[of_P[p]]
        alone = bool(told_D.any()) and not bool((others_PD @ told_D >= SAME).any())
        unit_KD[of_P[p]] = told_D if alone else keyed_D
    return unit_KD[of_P]


def distances(unit_PD: Tensor) -> Tensor:
    """Returns the distance of each pair of rows, once: P(P − 1)/2 of them, by differences."""
    return torch.nn.functional.pdist(unit_PD)


def energy(unit_PD: Tensor) -> Tensor:
    """Returns E = Σ_{j<k} log 1/‖c_j − c_k‖, ProtoNorm Eq. (10)."""
    return -distances(unit_PD).log().sum()


def simplex_bound(classes: int) -> float:
    """Returns the least energy of any P unit vectors in any dimension: that of the regular simplex.

    Its pairs are √(2P/(P − 1)) apart. By Jensen's inequality nothing is below, since the squared distances of
    unit vectors add up to at most P².
    """
    if classes < 2:
        return math.nan
    return -classes * (classes - 1) / 4 * math.log(2 * classes / (classes - 1))


def force(unit_PD: Tensor) -> Tensor:
    """Returns F_j = Σ_k (c_j − c_k)/‖c_j − c_k‖², ProtoNorm Eq. (11), by the Gram matrix.

    On the sphere ‖c_j − c_k‖² = 2 − 2 c_j·c_k, so no P×P×D tensor of differences is needed.
    """
    pull_PP = 1 / (2 - 2 * unit_PD @ unit_PD.T).clamp_min(EPS)
    pull_PP.fill_diagonal_(0)
    return pull_PP.sum(1, keepdim=True) * unit_PD - pull_PP @ unit_PD


def tangent(force_PD: Tensor, unit_PD: Tensor) -> Tensor:
    """Returns the part of each force that moves its point along the sphere; the rest is (P − 1)/2 outward."""
    return force_PD - (force_PD * unit_PD).sum(1, keepdim=True) * unit_PD
