"""The base classes of refinements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from hpcfl.config.section import Section
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.context import MethodContext
from hpcfl.methods.declarations import NoOptions
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.sphere import directions
from hpcfl.utils.accelerator import to_host


@dataclass
class RefineStats:
    """Statistics of a refinement in its last round; numbers, or tensors before `with_values`."""

    iterations: Any = 0
    """Solver iterations, or SGD steps of the server."""
    loss: Any = math.nan
    """Mean loss of the server's last epoch."""
    delta: Any = math.nan
    """FedTGP's margin δ(t)."""
    distances: list[tuple[float, float, float]] = field(default_factory=list)
    """Minimum, mean and maximum pairwise distance before the first and after each iteration, if traced."""

    def with_values(self, *values: Tensor) -> list[Tensor]:
        """Returns values on the host, and turns statistics that are on a device into numbers with them."""
        names = [name for name in ("iterations", "loss", "delta") if isinstance(getattr(self, name), Tensor)]
        numbers = to_host(*(getattr(self, name) for name in names), *values)
        for name, number in zip(names, numbers, strict=False):
            setattr(self, name, number.item())
        return numbers[len(names) :]


class Refinement:
    """Refinement `none`: returns the aggregated prototypes unchanged. The base of all others.

    Which other parts it can be combined with follows from what it declares here.
    """

    paper: ClassVar[str] = "–"
    Options: ClassVar[type[Section]] = NoOptions
    """The keys of [method] that are its options; their values are in `context.options`, by name."""
    learns: ClassVar[bool] = False
    """Whether it trains prototypes on the uploads of every round, and so has all classes."""
    unit_length: ClassVar[bool] = False
    """Whether its prototypes have length 1; clients then multiply them by γ."""
    no_masks: ClassVar[str] = ""
    """Why it cannot be combined with the masks of `method.sparsity`; empty: it can."""
    only_separates: ClassVar[bool] = False
    """Whether it does nothing for prototypes that are orthogonal already."""
    covers_all_classes: ClassVar[bool] = False
    """Whether the result has a valid row for absent classes too."""
    min_classes: ClassVar[int] = 1
    min_features: ClassVar[int] = 1

    def __init__(self, context: MethodContext):
        self.context, self.stats = context, RefineStats()

    @staticmethod
    def impossible(classes: int, features: int) -> str:
        """Returns why it cannot place so many classes; empty: it can."""
        return ""

    @staticmethod
    def remark(classes: int, features: int) -> str:
        """Returns what a user should know; empty: nothing."""
        return ""

    @staticmethod
    def no_iterations(classes: int, features: int) -> str:
        """Returns why its solver never iterates; empty: it does, if it has the option `iterations`."""
        return ""

    def initial(self) -> Prototypes | None:
        """Returns the prototypes of `initial = "random"`; None: a keyed direction of length 1 per class."""
        return None

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Returns the global prototypes of round t from the last ones, the new aggregate and the uploads."""
        self.stats = RefineStats()
        return new

    def flops(self, uploads: int) -> float:
        """Returns the FLOPs of matrix products in a round with so many uploaded prototypes, for `hpcfl plan`.

        0 where a solver runs: how long is known only in the run.
        """
        return 0.0

    def skip_round(self) -> None:
        """Resets the statistics for a round without refinement; δ is kept."""
        self.stats = RefineStats(delta=self.stats.delta)

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors to checkpoint, by name."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restores a checkpointed state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


class OnSphere(Refinement):
    """Base of refinements that move the directions of the present classes; the result has length 1."""

    unit_length = True
    on_host: ClassVar[bool] = False
    """Whether it computes on the CPU: a few large steps, which a device does not speed up."""

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        self.stats = RefineStats()
        mask_KD = self.context.mask_KD
        if self.on_host:
            parts = to_host(new.value_KD, new.present_K, last.value_KD, last.present_K)
            new, last = Prototypes(*parts[:2]), Prototypes(*parts[2:])
            mask_KD = None if mask_KD is None else mask_KD.cpu()
        unit_PD, class_P = directions(new, last, self.context.seed, mask_KD)
        refined_KD = torch.zeros_like(new.value_KD)
        refined_PD = self.separate(unit_PD, None if mask_KD is None else mask_KD[class_P])
        refined_KD[class_P] = refined_PD.to(refined_KD.dtype)
        return Prototypes(refined_KD, new.present_K).to(self.context.device)

    def separate(self, unit_PD: Tensor, mask_PD: Tensor | None) -> Tensor:
        """Returns directions that are farther apart, each within its mask."""
        raise NotImplementedError
