"""Mutually orthogonal directions without negative entries: what features behind a ReLU can reach."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.aggregate import Upload
from hpcfl.methods.equal_weight_code import best_code
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement, RefineStats
from hpcfl.methods.sphere import directions
from hpcfl.utils import seeds


def own_dimensions(wish_KD: np.ndarray) -> np.ndarray:
    """Returns whose each dimension is, [K, D] bool: one class's, in numbers that differ by at most one.

    The assignment has the largest sum of wishes: a linear assignment of dimensions to places, of which
    ⌊D/K⌋ of every class must be filled.
    """
    from scipy.optimize import linear_sum_assignment

    classes, features = wish_KD.shape
    must = features // classes
    fill = 1.0 + features * float(np.ptp(wish_KD))  # more than all wishes together
    sure = np.repeat(wish_KD.T + fill, must, axis=1)
    rows, places = linear_sum_assignment(np.concatenate([sure, wish_KD.T], axis=1), maximize=True)
    owner_D = np.where(places < must * classes, places // must, places - must * classes)
    own_KD = np.zeros((classes, features), dtype=bool)
    own_KD[owner_D, rows] = True
    return own_KD


def shared_dimensions(wish_KD: np.ndarray, key: int) -> np.ndarray:
    """Returns sets of equal size, far apart by Hamming distance, dealt as the classes wish: for K > D."""
    from scipy.optimize import linear_sum_assignment

    word_KD = best_code(len(wish_KD), wish_KD.shape[1], key)
    gain_KK = torch.from_numpy(wish_KD) @ torch.from_numpy(word_KD).double().T
    classes, words = linear_sum_assignment(gain_KK.numpy(), maximize=True)
    own_KD = np.zeros_like(word_KD)
    own_KD[classes] = word_KD[words]
    return own_KD


class Nonnegative(Refinement):
    """Class j points along its own dimensions, with equal entries; classes not seen get what is left."""

    places_all = True

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        self.stats = RefineStats()
        wish_KD = torch.zeros_like(new.value_KD, dtype=torch.float64)
        wish_KD[new.present_K] = directions(new, last, self.context.seed)
        return Prototypes(self.place(wish_KD.cpu()).to(new.value_KD), new.present_K)

    def place(self, wish_KD: Tensor) -> Tensor:
        classes, features = wish_KD.shape
        if classes <= features:
            own_KD = own_dimensions(wish_KD.numpy())
        else:
            own_KD = shared_dimensions(wish_KD.numpy(), seeds.key(self.context.seed, "code"))
        placed_KD = torch.from_numpy(own_KD).double()
        return placed_KD / placed_KD.sum(1, keepdim=True).sqrt()
