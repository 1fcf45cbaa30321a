"""The parts of prototype methods, by name. Does not import torch.

The classes themselves have the same declarations as attributes, for classes that are derived from them.
"""

from __future__ import annotations

from math import comb
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hpcfl.config.section import Count, Positive, Section, Weight
from hpcfl.methods.declarations import AggregatePart, DistancePart, RefinementPart


class SolverOptions(Section):
    iterations: Annotated[int, Field(ge=0, le=1_000_000)] = 500
    """Most solver iterations per round; simplex: only with K > d + 1."""
    stopping: Literal["tangent", "whole"] = "tangent"
    """Stops when the tangent force is constant; or the whole force, as published."""
    solver_lr: Positive = 0.1
    """η, the step of the solver; published code begins with 0.095."""
    solver_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """μ, the solver's momentum."""
    solver_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Factor of η after every solver_decay_every iterations."""
    solver_decay_every: Count = 10
    """Iterations after which η is multiplied by solver_decay."""
    solver_patience: Count = 10
    """The solver stops once the mean force, to 4 decimals, is unchanged so many times in a row."""


class ServerOptions(Section):
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Epochs over the uploaded prototypes per round."""
    server_network: bool = True
    """Train prototypes through a two-layer network (F in the papers), or directly."""
    server_lr: Positive | None = None
    """Learning rate of the server's SGD, which is new in each round; unset: train.lr."""
    server_batch: Count | None = None
    """Uploaded prototypes per step of the server's SGD; unset: train.batch_size."""


class TgpOptions(ServerOptions):
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Epochs over the uploaded prototypes per round."""
    margin: Literal["max-min", "max-pair", "fixed", "none"] = "max-min"
    """δ(t) is the largest margin (max-min), the largest distance (max-pair), τ (fixed) or 0 (none)."""
    tau: Positive = 100.0
    """τ, the upper limit of the margin δ(t)."""

    @model_validator(mode="after")
    def _check_tau(self) -> TgpOptions:
        if self.margin == "none" and "tau" in self.model_fields_set:
            raise ValueError(f"method.tau = {self.tau}: with margin = 'none' there is no margin")
        return self


class OrthogonalOptions(ServerOptions):
    pull: Weight = 1.0
    """λ_s, the weight of similarity to uploads of the same class."""
    push: Weight = 10.0
    """γ, the weight of orthogonality to uploads of other classes."""

    @model_validator(mode="after")
    def _check_weights(self) -> OrthogonalOptions:
        if not self.pull and not self.push:
            raise ValueError("method.pull = 0, method.push = 0: nothing is left to learn from")
        return self


def simplex_iterations(classes: int, features: int) -> str:
    """Returns why the simplex needs no iterations; empty: it does."""
    if classes > features + 1:
        return ""
    return f"refine = 'simplex' has no iterations for {classes} classes in {features} dimensions"


def no_simplex(classes: int, features: int) -> str:
    """Returns what is done where there is no regular simplex; empty: there is one."""
    if classes <= features + 1:
        return ""
    return f"{classes} classes have no regular simplex in {features} dimensions: Thomson, improved by L-BFGS"


def too_few_sets(classes: int, features: int) -> str:
    """Returns why not every class can have its own set of dimensions; empty: it can."""
    max_sets = max(features, comb(features, features // 2))
    if classes <= max_sets:
        return ""
    return f"has at most {max_sets} different sets of dimensions, the data has {classes} classes"


def shared_sets(classes: int, features: int) -> str:
    """Returns what is done where classes share dimensions; empty: they do not."""
    if classes <= features:
        return ""
    return f"{classes} classes share {features} dimensions by Hamming distance: they cannot be orthogonal"


REFINEMENTS = {
    "none": RefinementPart(path="hpcfl.methods.refine.base:Refinement", about="no refinement"),
    "thomson": RefinementPart(
        path="hpcfl.methods.refine.thomson:Thomson",
        about="moves prototypes apart on the sphere: the Thomson problem",
        paper="ProtoNorm, Eq. (8)-(14)",
        Options=SolverOptions,
        unit_length=True,
        only_separates=True,
        min_classes=2,
        min_features=2,
    ),
    "tgp": RefinementPart(
        path="hpcfl.methods.refine.tgp:Tgp",
        about="trains prototypes with a contrastive loss and an adaptive margin",
        paper="FedTGP, Eq. (5)-(10)",
        Options=TgpOptions,
        learns=True,
        min_classes=2,
    ),
    "orthogonal": RefinementPart(
        path="hpcfl.methods.refine.orthogonal:Orthogonal",
        about="trains prototypes towards orthogonality",
        paper="FedORGP, Eq. (3)-(5)",
        Options=OrthogonalOptions,
        learns=True,
        only_separates=True,
        min_classes=2,
    ),
    "simplex": RefinementPart(
        path="hpcfl.methods.refine.simplex:Simplex",
        about="the regular simplex that is nearest to the means",
        paper="hpcfl",
        Options=SolverOptions,
        unit_length=True,
        no_masks="has entries in every dimension, which masks forbid",
        min_classes=2,
        min_features=2,
        remark=no_simplex,
        no_iterations=simplex_iterations,
    ),
    "nonnegative": RefinementPart(
        path="hpcfl.methods.refine.nonnegative:Nonnegative",
        about="every class has its own dimensions",
        paper="hpcfl",
        unit_length=True,
        no_masks="chooses every class's dimensions itself",
        min_classes=2,
        impossible=too_few_sets,
        remark=shared_sets,
    ),
}

AGGREGATES = {
    "mean": AggregatePart(
        path="hpcfl.methods.aggregate:Mean",
        about="mean over the clients that have a class",
        paper="ProtoNorm, Eq. (7)",
    ),
    "weighted": AggregatePart(
        path="hpcfl.methods.aggregate:Weighted",
        about="mean weighted by samples",
        paper="FedProto, as commonly implemented",
        needs_counts=True,
    ),
    "weighted-literal": AggregatePart(
        path="hpcfl.methods.aggregate:WeightedLiteral",
        about="mean weighted by samples, divided by the number of clients",
        paper="FedProto, Eq. (6) as printed",
        needs_counts=True,
    ),
    "ppa": AggregatePart(
        path="hpcfl.methods.aggregate:Ppa",
        about="sum of n_ij c_ij, without sample counts",
        paper="sparse prototypes, Eq. (10), (11)",
        sends_products=True,
        keeps_uploads=True,
    ),
}

DISTANCES = {
    "mse": DistancePart(
        path="hpcfl.methods.local_loss:mse",
        about="squared difference, mean over dimensions",
        paper="as in published code",
        weight=10.0,
    ),
    "euclid": DistancePart(
        path="hpcfl.methods.local_loss:euclid",
        about="Euclidean distance",
        paper="ProtoNorm, Eq. (5)",
        weight=0.1,
    ),
    "sq": DistancePart(path="hpcfl.methods.local_loss:squared_euclid", about="squared Euclidean distance"),
    "cosine": DistancePart(
        path="hpcfl.methods.local_loss:cosine",
        about="1 − cosine",
        paper="FedORGP, Eq. (8)",
        weight=100.0,
        by_angle=True,
    ),
}
"""λ of the literature belongs to its distance and is never used with another."""

PARTS: dict[str, dict[str, Any]] = {"refine": REFINEMENTS, "aggregate": AGGREGATES, "distance": DISTANCES}
"""The known parts of each slot that takes an import path too."""
