"""A recipe's names turned into parts that compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcfl.config import Config
from hpcfl.methods.aggregate import AGGREGATES, Upload
from hpcfl.methods.catalogue import Recipe
from hpcfl.methods.guide import Guide
from hpcfl.methods.infer import nearest_N
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refine, Setting
from hpcfl.methods.refine.nonnegative import Nonnegative
from hpcfl.methods.refine.orthogonal import Orthogonal
from hpcfl.methods.refine.simplex import Simplex
from hpcfl.methods.refine.tgp import Tgp
from hpcfl.methods.refine.thomson import Thomson
from hpcfl.methods.sphere import keyed_direction

REFINES: dict[str, type[Refine]] = {
    "none": Refine,
    "thomson": Thomson,
    "tgp": Tgp,
    "orthogonal": Orthogonal,
    "simplex": Simplex,
    "nonnegative": Nonnegative,
}


@dataclass(frozen=True)
class Method:
    """aggregate → refine on the server, guide → infer on the clients."""

    recipe: Recipe
    aggregate: Callable[[Sequence[Upload]], Prototypes]
    refine: Refine
    guide: Guide
    forget: bool

    def start(self) -> Prototypes:
        """Returns the global prototypes before the first round: none, or anchors from the seed alone."""
        setting = self.refine.setting
        none = Prototypes.none(setting.classes, setting.features)
        if self.recipe.anchor != "seed":
            return none
        return self.refine(0, none, self._complete(none), ())

    def serve(self, t: int, last: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Returns the global prototypes after round t; a class that nobody uploaded keeps its last ones."""
        if not uploads or (self.recipe.fixed and last.present_K.any()):
            self.refine.rest()
            return last
        new = self.aggregate(uploads)
        if self.recipe.fixed and not self.refine.places_all:
            new = self._complete(new)
        elif not self.recipe.fixed and not self.forget:
            value_KD = new.value_KD.where(new.present_K[:, None], last.value_KD)
            new = Prototypes(value_KD, new.present_K | last.present_K)
        refined = self.refine(t, last, new, uploads)
        present_K = refined.present_K | self.recipe.fixed
        if self.forget:
            present_K = present_K & new.present_K
        return Prototypes(refined.value_KD * present_K[:, None], present_K)

    def target(self, shared: Prototypes) -> Prototypes:
        """Returns what features are drawn to and compared with: γ times the global ones, ProtoNorm (15)."""
        return Prototypes(self.recipe.scale * shared.value_KD, shared.present_K)

    def nearest_N(self, z_ND: Tensor, prototypes: Prototypes) -> Tensor:
        """Returns each sample's class by prototypes, compared as the guide draws: by angle or by distance."""
        return nearest_N(z_ND, prototypes, by_angle=self.guide.distance == "cosine")

    def _complete(self, seen: Prototypes) -> Prototypes:
        """Returns prototypes of all classes: unseen ones get a keyed direction and the others' mean length.

        Anchors are chosen once, so every class must have its own.
        """
        length = seen.value_KD[seen.present_K].norm(dim=1).mean() if seen.present_K.any() else 1.0
        value_KD = seen.value_KD.clone()
        for k in (~seen.present_K).nonzero()[:, 0].tolist():
            drawn_D = keyed_direction(self.refine.setting.seed, k, value_KD.shape[1])
            value_KD[k] = length * drawn_D.to(value_KD)
        return Prototypes(value_KD, torch.ones_like(seen.present_K))


def compose(
    recipe: Recipe, config: Config, dims: tuple[int, int], device: torch.device | str = "cpu"
) -> Method:
    """Returns the method that a recipe describes, for K classes and D features."""
    setting = Setting(
        *dims,
        seed=config.seed,
        lr=config.train.lr,
        batch_size=config.train.batch_size,
        device=torch.device(device),
        options=recipe.options,
        trace=config.log.distances,
    )
    return Method(
        recipe=recipe,
        aggregate=AGGREGATES[recipe.aggregate],
        refine=REFINES[recipe.refine](setting),
        guide=Guide(recipe.weight, recipe.distance),
        forget=config.method.forget,
    )
