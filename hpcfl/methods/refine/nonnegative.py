"""Mutually orthogonal directions without negative entries, which features after a ReLU can reach."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.aggregate import Upload
from hpcfl.methods.constant_weight_code import best_code
from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement, RefineStats
from hpcfl.methods.sphere import directions
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device


def disjoint_dimensions(preference_KD: np.ndarray) -> np.ndarray:
    """Returns the dimensions of each class, [K, D] bool: disjoint sets whose sizes differ by at most one.

    They maximise the sum of the preferences: a linear assignment of dimensions to slots, where every class
    has ⌊D/K⌋ slots that must be filled and one that may be.
    """
    from scipy.optimize import linear_sum_assignment

    classes, features = preference_KD.shape
    required = features // classes
    bonus = 1.0 + features * float(np.ptp(preference_KD))  # larger than any difference of sums
    required_gain = np.repeat(preference_KD.T + bonus, required, axis=1)
    gain = np.concatenate([required_gain, preference_KD.T], axis=1)
    rows, slots = linear_sum_assignment(gain, maximize=True)
    class_D = np.where(slots < required * classes, slots // required, slots - required * classes)
    own_KD = np.zeros((classes, features), dtype=bool)
    own_KD[class_D, rows] = True
    return own_KD


def shared_dimensions(preference_KD: np.ndarray, key: int) -> np.ndarray:
    """Returns the dimensions of each class for K > D: equally large sets with little overlap.

    A linear assignment of sets to classes maximises the sum of the preferences.
    """
    from scipy.optimize import linear_sum_assignment

    word_KD = best_code(len(preference_KD), preference_KD.shape[1], key)
    gain_KK = torch.from_numpy(preference_KD) @ torch.from_numpy(word_KD).double().T
    classes, words = linear_sum_assignment(gain_KK.numpy(), maximize=True)
    own_KD = np.zeros_like(word_KD)
    own_KD[classes] = word_KD[words]
    return own_KD


@declares(REFINEMENTS["nonnegative"])
class Nonnegative(Refinement):
    """Class j has equal entries in its own dimensions, zero elsewhere; absent classes get what is left."""

    covers_all_classes = True

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        self.stats = RefineStats()
        unit_PD, class_P = directions(new, last, self.context.seed)
        direction_KD = torch.zeros_like(new.value_KD, dtype=torch.float64)
        direction_KD[class_P] = unit_PD
        refined_KD = self._nonnegative(direction_KD.cpu()).to(new.value_KD.dtype)
        return Prototypes(to_device(refined_KD, new.value_KD.device), new.present_K)

    def _nonnegative(self, direction_KD: Tensor) -> Tensor:
        """Returns unit vectors on the dimensions that each class prefers by its direction."""
        classes, features = direction_KD.shape
        if classes <= features:
            own_KD = disjoint_dimensions(direction_KD.numpy())
        else:
            own_KD = shared_dimensions(direction_KD.numpy(), seeds.key(self.context.seed, "code"))
        refined_KD = torch.from_numpy(own_KD).double()
        return refined_KD / refined_KD.sum(1, keepdim=True).sqrt()
