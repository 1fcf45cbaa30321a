"""What all refinements have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hpcfl.methods.aggregate import Upload
from hpcfl.methods.context import MethodContext
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.sphere import directions


@dataclass
class RefineStats:
    """What a refinement did in its last round."""

    iterations: int = 0
    loss: float = math.nan
    delta: float = math.nan
    distances: list[tuple[float, float, float]] = field(default_factory=list)
    """Least, mean and largest pairwise distance before the first and after each iteration, on request."""


class Refinement:
    """Refinement `none`: the aggregated prototypes as they are."""

    places_all = False
    """Whether classes that nobody has get a row too, of no consequence to the others."""

    def __init__(self, context: MethodContext):
        self.context, self.stats = context, RefineStats()

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Returns round t's global prototypes, given the last ones, the new means and what they came from."""
        self.stats = RefineStats()
        return new

    def skip_round(self) -> None:
        """Notes a round in which there was nothing to do."""
        self.stats = RefineStats(delta=self.stats.delta)

    def state(self) -> dict[str, Tensor]:
        """Returns what the next round needs beside the last prototypes: tensors by name."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


class OnSphere(Refinement):
    """A refinement that places the directions of the present classes anew; the result has unit length."""

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        self.stats = RefineStats()
        mask_KD = self.context.mask_KD
        unit_PD = directions(new, last, self.context.seed, mask_KD)
        placed_KD = torch.zeros_like(new.value_KD)
        placed_PD = self.place(unit_PD, None if mask_KD is None else mask_KD[new.present_K])
        placed_KD[new.present_K] = placed_PD.to(placed_KD.dtype)
        return Prototypes(placed_KD, new.present_K)

    def place(self, unit_PD: Tensor, mask_PD: Tensor | None) -> Tensor:
        """Returns new directions, each within its mask."""
        raise NotImplementedError
