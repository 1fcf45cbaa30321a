"""Which slots do not go together, and why. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import TYPE_CHECKING, Any

from hpcfl.errors import BadInput
from hpcfl.methods import sparse

if TYPE_CHECKING:
    from hpcfl.methods.spec import MethodSpec

LEARNED = ("tgp", "orthogonal")
OPTIONS = {
    "iterations": ("thomson", "simplex"),
    "stopping": ("thomson", "simplex"),
    "server_epochs": LEARNED,
    "server_network": LEARNED,
    "margin": ("tgp",),
    "tau": ("tgp",),
    "pull": ("orthogonal",),
    "push": ("orthogonal",),
}
"""Which refinements have an option."""
OF_SLOT = {
    "masked": ("sparsity", 0),
    **dict.fromkeys(("curriculum_start", "curriculum_end"), ("curriculum", "constant")),
    **dict.fromkeys(("proxy_scale", "proxy_start"), ("proxy", 0)),
    **dict.fromkeys(("consistency", "mix", "margin_quantile", "distance_quantile"), ("semi", 0)),
}
"""Which slots mean nothing where another has this value."""

DENSE = {
    "simplex": "has entries in every dimension, which masks forbid",
    "nonnegative": "chooses every class's dimensions itself",
}
"""Refinements that do not go with masks, and why."""


def check_slots(filled: MethodSpec, set_: Mapping[str, Any], forget: bool) -> None:
    """Raises BadInput where slots contradict each other; `set_` holds those that the user set."""
    for key, value in set_.items():
        if key in OPTIONS and filled.refine not in OPTIONS[key]:
            whose = " and ".join(OPTIONS[key])
            raise BadInput(f"method.{key} = {value!r}: belongs to refine = {whose}, not to {filled.refine!r}")
        whose, without = OF_SLOT.get(key, ("", None))
        if whose and value and getattr(filled, whose) == without:
            raise BadInput(f"method.{key} = {value!r}: means nothing with method.{whose} = {without!r}")
    if filled.curriculum != "constant" and filled.curriculum_end <= filled.curriculum_start:
        raise BadInput(
            f"method.curriculum_end = {filled.curriculum_end}: must come after "
            f"method.curriculum_start = {filled.curriculum_start}"
        )
    if filled.refine == "orthogonal" and not filled.options["pull"] and not filled.options["push"]:
        raise BadInput("method.pull = 0, method.push = 0: nothing is left to learn from")
    if "tau" in set_ and filled.options["margin"] == "none":
        raise BadInput(f"method.tau = {set_['tau']}: with margin = 'none' there is no margin")
    if reason := contradiction(filled, "scale" in set_, forget):
        raise BadInput(reason)


def contradiction(filled: MethodSpec, scale_set: bool, forget: bool) -> str | None:
    """Returns why a recipe cannot be, or None."""
    refine, anchor = filled.refine, filled.anchor
    if refine in LEARNED and filled.fixed:
        return f"method.anchor = {anchor!r}: refine = {refine!r} learns from the uploads of every round"
    if refine in LEARNED and filled.aggregate not in ("mean", "ppa"):
        return (
            f"method.aggregate = {filled.aggregate!r}: refine = {refine!r} learns from each client's own "
            "prototypes, not from an aggregate"
        )
    if anchor == "seed" and filled.aggregate != "mean":
        return f"method.aggregate = {filled.aggregate!r}: with anchor = 'seed' nothing is ever uploaded"
    if filled.fixed and forget:
        return f"method.forget = true: with anchor = {anchor!r} prototypes are settled once and never dropped"
    if filled.aggregate == "ppa" and forget:
        return "method.forget = true: aggregate = 'ppa' goes on with every client's last upload"
    if filled.aggregate == "ppa" and anchor == "first":
        return (
            "method.aggregate = 'ppa': anchor = 'first' settles lengths before every client was heard, which "
            "its sum needs"
        )
    if filled.sparsity and refine in DENSE:
        return f"method.sparsity = {filled.sparsity}: refine = {refine!r} {DENSE[refine]}"
    if filled.sparsity and anchor == "seed":
        return f"method.sparsity = {filled.sparsity}: with anchor = 'seed' nothing ever travels"
    if filled.distance == "cosine" and scale_set and filled.scale != 1:
        return f"method.scale = {filled.scale}: distance = 'cosine' compares directions, not lengths"
    return None


def check_dims(filled: MethodSpec, classes: int, features: int) -> None:
    """Raises BadInput where a method is impossible with so many classes or features."""
    if not filled.exchange:
        return
    if filled.sparsity > features:
        raise BadInput(f"method.sparsity = {filled.sparsity}: models.features has only {features} dimensions")
    if filled.refine in ("thomson", "orthogonal") and sparse.disjoint(classes, features, filled.sparsity):
        raise BadInput(
            f"method.sparsity = {filled.sparsity}: {classes} classes in {features} dimensions share none, "
            f"so they are orthogonal and refine = {filled.refine!r} has nothing to do"
        )
    if filled.refine == "none":
        return
    if classes < 2:
        raise BadInput(f"method.refine = {filled.refine!r}: needs two classes, the data has {classes}")
    if filled.refine in ("thomson", "simplex") and features < 2:
        raise BadInput(f"models.features = {features}: refine = {filled.refine!r} needs 2 or more")
    most = max(features, comb(features, features // 2))
    if filled.refine == "nonnegative" and classes > most:
        raise BadInput(
            f"models.features = {features}: refine = 'nonnegative' has at most {most} different sets of "
            f"dimensions, the data has {classes} classes"
        )


def never_iterates(filled: MethodSpec, classes: int, features: int) -> str | None:
    """Returns why no round has iterations by momentum, or None."""
    if "iterations" not in filled.options:
        return f"refine = {filled.refine!r} has no iterations"
    if filled.anchor == "seed":
        return "with anchor = 'seed' nothing is refined in any round"
    if filled.refine == "simplex" and classes <= features + 1:
        return f"refine = 'simplex' has no iterations for {classes} classes in {features} dimensions"
    return None


def remarks(filled: MethodSpec, classes: int, features: int, rounds: int) -> list[str]:
    """Returns what a user should know about this combination."""
    return [*_geometry(filled, classes, features), *_phases(filled, rounds)]


def _phases(filled: MethodSpec, rounds: int) -> list[str]:
    """Returns which part of a schedule the run never reaches."""
    said = []
    start, end = filled.curriculum_start, filled.curriculum_end
    top = (start + end + 1) // 2 if filled.curriculum == "step" else end
    if filled.curriculum != "constant" and rounds < top:
        said.append(
            f"the curriculum is at its top in round {top}, the run ends in round {rounds}: λ does not reach "
            f"{filled.weight} (method.curriculum_start, method.curriculum_end)"
        )
    if 0 < rounds <= filled.semi:
        said.append(
            f"unlabelled samples are used after round {filled.semi}, the run ends before (method.semi)"
        )
    return said


def _geometry(filled: MethodSpec, classes: int, features: int) -> list[str]:
    """Returns where so many classes do not fit into so many dimensions as they should."""
    if filled.refine == "nonnegative" and classes > features:
        return [
            f"{classes} classes share {features} dimensions by Hamming distance: they cannot be orthogonal"
        ]
    if filled.refine == "simplex" and classes > features + 1:
        return [
            f"{classes} classes have no regular simplex in {features} dimensions: Thomson, improved by L-BFGS"
        ]
    return []
