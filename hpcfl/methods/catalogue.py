"""Every method as a composition of parts, by name; a paper is one entry. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hpcfl import config
from hpcfl.errors import BadInput, unknown


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The slots of a method, filled."""

    about: str
    paper: str
    exchange: bool = True
    """Prototypes travel; without, clients only train."""
    aggregate: config.Aggregate = "mean"
    refine: Literal["none"] = "none"
    weight: float = 10.0
    distance: config.Distance = "mse"
    scale: float = 1.0
    infer: config.Inference = "global"
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Slots that a dataset fills otherwise."""

    def slots(self) -> dict[str, Any]:
        """Returns what fills each slot; without exchange there is only inference."""
        names = ("aggregate", "refine", "distance", "weight", "scale") if self.exchange else ()
        return {name: getattr(self, name) for name in (*names, "infer")}

    @property
    def sends_counts(self) -> bool:
        """Whether sample counts travel: only where the aggregation weights by them."""
        return self.exchange and self.aggregate != "mean"


CATALOGUE = {
    "local": Recipe(
        about="no exchange: the floor every method is compared with",
        paper="–",
        exchange=False,
        infer="head",
    ),
    "fedproto": Recipe(
        about="means of class prototypes; clients align to them and compare with them",
        paper="Tan et al., FedProto, AAAI 2022; Eq. (2)-(6) in ProtoNorm's paper",
        aggregate="mean",  # Eq. (3) weights by n_ij; its published code takes the plain mean
        weight=10.0,  # with the mean over dimensions (mse), as HtFLlib runs it
        infer="global",  # Eq. (6) compares with local prototypes; its published code with global ones
        # On the spiral n_ij runs from 1 to hundreds within a class: the plain mean follows clients with a
        # single sample and falls below `local`, so Eq. (3)'s weights are kept there, with a stronger λ.
        on={"spiral": {"aggregate": "weighted", "weight": 30.0}},
    ),
}

WEIGHTS: dict[config.Distance, float] = {"mse": 10.0, "euclid": 0.1}
"""λ that the literature uses with each distance; it is never carried from one distance to another."""


def recipe(settings: config.Method, data: str) -> Recipe:
    """Returns the catalogue's entry for a dataset with the slots that the configuration replaces."""
    if settings.name not in CATALOGUE:
        raise unknown("method.name", settings.name, CATALOGUE)
    entry = CATALOGUE[settings.name]
    entry = replace(entry, **entry.on.get(data, {}))
    slots = settings.model_dump(
        include={"aggregate", "refine", "weight", "distance", "scale", "infer"}, exclude_none=True
    )
    if not entry.exchange:
        for slot in sorted(slots.keys() - {"infer"}):
            raise BadInput(f"method.{slot}: {settings.name!r} exchanges nothing and has no such slot")
        if settings.infer == "global":
            raise BadInput(f"method.infer = 'global': method {settings.name!r} has no global prototypes")
    if settings.distance not in (None, entry.distance) and settings.weight is None:
        if settings.distance not in WEIGHTS:
            raise BadInput(f"method.distance = {settings.distance!r}: needs its own method.weight")
        slots["weight"] = WEIGHTS[settings.distance]
    return replace(entry, **slots)
