"""The parts of prototype methods, by name, with what each declares about itself. Does not import torch.

Which parts go together (`rules`) follows from these declarations. A part of the user's own declares the same
as attributes of its class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import comb
from typing import Annotated, Any, Literal

from pydantic import Field

from hpcfl.config.section import Positive, Section, Weight


class NoOptions(Section):
    pass


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a method: where it is, and the keys of `[method]` that are its options."""

    path: str
    """`module:Class`; for a distance `module:function`."""
    Options: type[Section] = NoOptions

    @classmethod
    def of(cls, path: str, declared: object) -> Any:
        """Returns the part that a class or function declares by its attributes."""
        names = [field.name for field in fields(cls) if field.name != "path"]
        return cls(path=path, **{name: getattr(declared, name) for name in names if hasattr(declared, name)})


def _nothing(classes: int, features: int) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class RefinementPart(Part):
    """A refinement of the aggregated prototypes on the server."""

    learns: bool = False
    """Whether it trains prototypes on the uploads of every round, and so has all classes."""
    unit_length: bool = False
    """Whether its prototypes have length 1."""
    no_masks: str = ""
    """Why it cannot be combined with the masks of CPS; empty: it can."""
    only_separates: bool = False
    """Whether it does nothing for prototypes that are orthogonal already."""
    min_classes: int = 1
    min_features: int = 1
    impossible: Callable[[int, int], str] = _nothing
    """(K, d) → why it cannot place so many classes; empty: it can."""
    remark: Callable[[int, int], str] = _nothing
    """(K, d) → what a user should know; empty: nothing."""
    no_iterations: Callable[[int, int], str] = _nothing
    """(K, d) → why its solver never iterates; empty: it does, if it has the option `iterations`."""


@dataclass(frozen=True, kw_only=True)
class AggregatePart(Part):
    """An aggregation of the uploads of a round."""

    needs_counts: bool = False
    """Whether clients upload their sample counts."""
    sends_products: bool = False
    """Whether clients upload n_ij c_ij instead of c_ij."""
    keeps_uploads: bool = False
    """Whether it goes on with the last upload of clients that are absent."""


@dataclass(frozen=True, kw_only=True)
class DistancePart(Part):
    """A distance between a feature and a prototype."""

    weight: float | None = None
    """λ used in the literature with this distance; None: it must be given."""
    by_angle: bool = False
    """Whether it compares directions, and inference too."""


class SolverOptions(Section):
    iterations: Annotated[int, Field(ge=0, le=1_000_000)] = 500
    """Most solver iterations per round; simplex: only with K > d + 1."""
    stopping: Literal["tangent", "whole"] = "tangent"
    """Stops when the tangent force is constant; or the whole force, as published."""


class ServerOptions(Section):
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Epochs over the uploaded prototypes per round."""
    server_network: bool = True
    """Train prototypes through a two-layer network (F in the papers), or directly."""


class TgpOptions(ServerOptions):
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Epochs over the uploaded prototypes per round."""
    margin: Literal["max-min", "max-pair", "fixed", "none"] = "max-min"
    """δ(t) is the largest margin (max-min), the largest distance (max-pair), τ (fixed) or 0 (none)."""
    tau: Positive = 100.0
    """τ, the upper limit of the margin δ(t)."""


class OrthogonalOptions(ServerOptions):
    pull: Weight = 1.0
    """λ_s, the weight of similarity to uploads of the same class."""
    push: Weight = 10.0
    """γ, the weight of orthogonality to uploads of other classes."""


def _simplex_iterations(classes: int, features: int) -> str:
    if classes > features + 1:
        return ""
    return f"refine = 'simplex' has no iterations for {classes} classes in {features} dimensions"


def _no_simplex(classes: int, features: int) -> str:
    if classes <= features + 1:
        return ""
    return f"{classes} classes have no regular simplex in {features} dimensions: Thomson, improved by L-BFGS"


def _too_few_sets(classes: int, features: int) -> str:
    max_sets = max(features, comb(features, features // 2))
    if classes <= max_sets:
        return ""
    return f"has at most {max_sets} different sets of dimensions, the data has {classes} classes"


def _shared_sets(classes: int, features: int) -> str:
    if classes <= features:
        return ""
    return f"{classes} classes share {features} dimensions by Hamming distance: they cannot be orthogonal"


REFINEMENTS = {
    "none": RefinementPart(path="hpcfl.methods.refine.base:Refinement"),
    "thomson": RefinementPart(
        path="hpcfl.methods.refine.thomson:Thomson",
        Options=SolverOptions,
        unit_length=True,
        only_separates=True,
        min_classes=2,
        min_features=2,
    ),
    "tgp": RefinementPart(
        path="hpcfl.methods.refine.tgp:Tgp", Options=TgpOptions, learns=True, min_classes=2
    ),
    "orthogonal": RefinementPart(
        path="hpcfl.methods.refine.orthogonal:Orthogonal",
        Options=OrthogonalOptions,
        learns=True,
        only_separates=True,
        min_classes=2,
    ),
    "simplex": RefinementPart(
        path="hpcfl.methods.refine.simplex:Simplex",
        Options=SolverOptions,
        unit_length=True,
        no_masks="has entries in every dimension, which masks forbid",
        min_classes=2,
        min_features=2,
        remark=_no_simplex,
        no_iterations=_simplex_iterations,
    ),
    "nonnegative": RefinementPart(
        path="hpcfl.methods.refine.nonnegative:Nonnegative",
        unit_length=True,
        no_masks="chooses every class's dimensions itself",
        min_classes=2,
        impossible=_too_few_sets,
        remark=_shared_sets,
    ),
}

AGGREGATES = {
    "mean": AggregatePart(path="hpcfl.methods.aggregate:Mean"),
    "weighted": AggregatePart(path="hpcfl.methods.aggregate:Weighted", needs_counts=True),
    "weighted-literal": AggregatePart(path="hpcfl.methods.aggregate:WeightedLiteral", needs_counts=True),
    "ppa": AggregatePart(path="hpcfl.methods.aggregate:Ppa", sends_products=True, keeps_uploads=True),
}

DISTANCES = {
    "mse": DistancePart(path="hpcfl.methods.local_loss:mse", weight=10.0),
    "euclid": DistancePart(path="hpcfl.methods.local_loss:euclid", weight=0.1),
    "sq": DistancePart(path="hpcfl.methods.local_loss:squared_euclid"),
    "cosine": DistancePart(path="hpcfl.methods.local_loss:cosine", weight=100.0, by_angle=True),
}
"""λ of the literature belongs to its distance and is never used with another."""

PARTS: dict[str, dict[str, Any]] = {"refine": REFINEMENTS, "aggregate": AGGREGATES, "distance": DISTANCES}
"""The known parts of each slot that takes an import path too."""
