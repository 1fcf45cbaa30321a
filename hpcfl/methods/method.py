"""A recipe's names turned into parts that compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcfl.config import Method as Settings
from hpcfl.methods.aggregate import AGGREGATES, Upload
from hpcfl.methods.catalogue import Recipe
from hpcfl.methods.guide import Euclid
from hpcfl.methods.prototypes import Prototypes


def keep(prototypes: Prototypes) -> Prototypes:
    """Refinement `none`: the aggregated prototypes as they are."""
    return prototypes


REFINES: dict[str, Callable[[Prototypes], Prototypes]] = {"none": keep}


@dataclass(frozen=True)
class Method:
    """aggregate → refine on the server, guide → infer on the clients."""

    aggregate: Callable[[Sequence[Upload]], Prototypes]
    refine: Callable[[Prototypes], Prototypes]
    guide: Euclid
    scale: float
    forget: bool

    def serve(self, last: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Returns the next global prototypes; a class that nobody uploaded keeps its last ones."""
        if not uploads:
            return last
        new = self.aggregate(uploads)
        if not self.forget:
            value_KD = new.value_KD.where(new.present_K[:, None], last.value_KD)
            new = Prototypes(value_KD, new.present_K | last.present_K)
        return self.refine(new)

    def target(self, shared: Prototypes) -> Prototypes:
        """Returns what features are drawn to and compared with: γ times the global prototypes."""
        return Prototypes(self.scale * shared.value_KD, shared.present_K)


def compose(recipe: Recipe, settings: Settings) -> Method:
    """Returns the method that a recipe describes."""
    return Method(
        aggregate=AGGREGATES[recipe.aggregate],
        refine=REFINES[recipe.refine],
        guide=Euclid(recipe.weight, recipe.distance),
        scale=recipe.scale,
        forget=settings.forget,
    )
