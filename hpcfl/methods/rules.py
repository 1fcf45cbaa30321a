"""Which slots cannot be combined, and why. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import TYPE_CHECKING, Any

from hpcfl.errors import BadInput
from hpcfl.methods import sparse

if TYPE_CHECKING:
    from hpcfl.methods.spec import MethodSpec

TRAINED_BY_SERVER = ("tgp", "orthogonal")
"""Refinements whose prototypes the server trains by SGD."""
OPTIONS = {
    "iterations": ("thomson", "simplex"),
    "stopping": ("thomson", "simplex"),
    "server_epochs": TRAINED_BY_SERVER,
    "server_network": TRAINED_BY_SERVER,
    "margin": ("tgp",),
    "tau": ("tgp",),
    "pull": ("orthogonal",),
    "push": ("orthogonal",),
}
"""The refinements that have an option."""
DEPENDS_ON = {
    "masked": ("sparsity", 0),
    **dict.fromkeys(("curriculum_start", "curriculum_end"), ("curriculum", "constant")),
    **dict.fromkeys(("proxy_scale", "proxy_start"), ("proxy", 0)),
    **dict.fromkeys(("consistency", "mix", "margin_quantile", "distance_quantile"), ("semi", 0)),
}
"""Slots that have no effect if another slot has this value."""

NO_MASKS = {
    "simplex": "has entries in every dimension, which masks forbid",
    "nonnegative": "chooses every class's dimensions itself",
}
"""Refinements that cannot be combined with masks, and why."""


def check_slots(spec: MethodSpec, user_set: Mapping[str, Any], forget: bool) -> None:
    """Raises BadInput if slots contradict each other; `user_set` are those that the configuration sets."""
    for key, value in user_set.items():
        if key in OPTIONS and spec.refine not in OPTIONS[key]:
            owners = " and ".join(OPTIONS[key])
            raise BadInput(f"method.{key} = {value!r}: belongs to refine = {owners}, not to {spec.refine!r}")
        other, off = DEPENDS_ON.get(key, ("", None))
        if other and value and getattr(spec, other) == off:
            raise BadInput(f"method.{key} = {value!r}: means nothing with method.{other} = {off!r}")
    if spec.curriculum != "constant" and spec.curriculum_end <= spec.curriculum_start:
        raise BadInput(
            f"method.curriculum_end = {spec.curriculum_end}: must come after "
            f"method.curriculum_start = {spec.curriculum_start}"
        )
    if spec.refine == "orthogonal" and not spec.options["pull"] and not spec.options["push"]:
        raise BadInput("method.pull = 0, method.push = 0: nothing is left to learn from")
    if "tau" in user_set and spec.options["margin"] == "none":
        raise BadInput(f"method.tau = {user_set['tau']}: with margin = 'none' there is no margin")
    if reason := contradiction(spec, "scale" in user_set, forget):
        raise BadInput(reason)


def contradiction(spec: MethodSpec, scale_set: bool, forget: bool) -> str | None:
    """Returns why a combination of slots is impossible, or None."""
    refine, anchor = spec.refine, spec.anchor
    if refine in TRAINED_BY_SERVER and spec.fixed:
        return f"method.anchor = {anchor!r}: refine = {refine!r} learns from the uploads of every round"
    if refine in TRAINED_BY_SERVER and spec.aggregate not in ("mean", "ppa"):
        return (
            f"method.aggregate = {spec.aggregate!r}: refine = {refine!r} learns from each client's own "
            "prototypes, not from an aggregate"
        )
    if anchor == "seed" and spec.aggregate != "mean":
        return f"method.aggregate = {spec.aggregate!r}: with anchor = 'seed' nothing is ever uploaded"
    if spec.fixed and forget:
        return f"method.forget = true: with anchor = {anchor!r} prototypes are settled once and never dropped"
    if spec.aggregate == "ppa" and forget:
        return "method.forget = true: aggregate = 'ppa' goes on with every client's last upload"
    if spec.aggregate == "ppa" and anchor == "first":
        return (
            "method.aggregate = 'ppa': anchor = 'first' settles lengths before every client was heard, which "
            "its sum needs"
        )
    if spec.sparsity and refine in NO_MASKS:
        return f"method.sparsity = {spec.sparsity}: refine = {refine!r} {NO_MASKS[refine]}"
    if spec.sparsity and anchor == "seed":
        return f"method.sparsity = {spec.sparsity}: with anchor = 'seed' nothing ever travels"
    if spec.distance == "cosine" and scale_set and spec.scale != 1:
        return f"method.scale = {spec.scale}: distance = 'cosine' compares directions, not lengths"
    return None


def check_dims(spec: MethodSpec, classes: int, features: int) -> None:
    """Raises BadInput if a method is impossible with so many classes or features."""
    if not spec.exchange:
        return
    if spec.sparsity > features:
        raise BadInput(f"method.sparsity = {spec.sparsity}: models.features has only {features} dimensions")
    if spec.refine in ("thomson", "orthogonal") and sparse.disjoint(classes, features, spec.sparsity):
        raise BadInput(
            f"method.sparsity = {spec.sparsity}: {classes} classes in {features} dimensions share none, "
            f"so they are orthogonal and refine = {spec.refine!r} has nothing to do"
        )
    if spec.refine == "none":
        return
    if classes < 2:
        raise BadInput(f"method.refine = {spec.refine!r}: needs two classes, the data has {classes}")
    if spec.refine in ("thomson", "simplex") and features < 2:
        raise BadInput(f"models.features = {features}: refine = {spec.refine!r} needs 2 or more")
    max_sets = max(features, comb(features, features // 2))
    if spec.refine == "nonnegative" and classes > max_sets:
        raise BadInput(
            f"models.features = {features}: refine = 'nonnegative' has at most {max_sets} different sets of "
            f"dimensions, the data has {classes} classes"
        )


def no_iterations_reason(spec: MethodSpec, classes: int, features: int) -> str | None:
    """Returns why the Thomson solver never runs with this method, or None if it does."""
    if "iterations" not in spec.options:
        return f"refine = {spec.refine!r} has no iterations"
    if spec.anchor == "seed":
        return "with anchor = 'seed' nothing is refined in any round"
    if spec.refine == "simplex" and classes <= features + 1:
        return f"refine = 'simplex' has no iterations for {classes} classes in {features} dimensions"
    return None


def remarks(spec: MethodSpec, classes: int, features: int, rounds: int) -> list[str]:
    """Returns sentences that a user should know about this combination."""
    return [*_geometry(spec, classes, features), *_phases(spec, rounds)]


def _phases(spec: MethodSpec, rounds: int) -> list[str]:
    """Returns the parts of the curriculum and semi-supervised phase that the run does not reach."""
    notes = []
    start, end = spec.curriculum_start, spec.curriculum_end
    full = (start + end + 1) // 2 if spec.curriculum == "step" else end
    if spec.curriculum != "constant" and rounds < full:
        notes.append(
            f"the curriculum is at its top in round {full}, the run ends in round {rounds}: λ does not reach "
            f"{spec.weight} (method.curriculum_start, method.curriculum_end)"
        )
    if 0 < rounds <= spec.semi:
        notes.append(
            f"unlabelled samples are used after round {spec.semi}, the run ends before (method.semi)"
        )
    return notes


def _geometry(spec: MethodSpec, classes: int, features: int) -> list[str]:
    """Returns whether there are too many classes for orthogonal or simplex prototypes in D dimensions."""
    if spec.refine == "nonnegative" and classes > features:
        return [
            f"{classes} classes share {features} dimensions by Hamming distance: they cannot be orthogonal"
        ]
    if spec.refine == "simplex" and classes > features + 1:
        return [
            f"{classes} classes have no regular simplex in {features} dimensions: Thomson, improved by L-BFGS"
        ]
    return []
