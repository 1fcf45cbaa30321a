"""Which slots cannot be combined, and why. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpcfl.errors import BadInput
from hpcfl.methods import sparse

if TYPE_CHECKING:
    from hpcfl.methods.spec import Plan, PrototypeSpec

DEPENDS_ON = {
    "masked": ("sparsity", 0),
    **dict.fromkeys(("curriculum_start", "curriculum_end"), ("curriculum", "constant")),
    **dict.fromkeys(("proxy_scale", "proxy_start"), ("proxy", 0)),
    **dict.fromkeys(("consistency", "mix", "margin_quantile", "distance_quantile"), ("semi", 0)),
}
"""Slots that have no effect if another slot has this value."""


def check_slots(spec: PrototypeSpec, user_set: Mapping[str, Any], forget: bool) -> None:
    """Raises BadInput if slots contradict each other; `user_set` are those that the configuration sets."""
    for key, value in user_set.items():
        other, off = DEPENDS_ON.get(key, ("", None))
        if other and value and getattr(spec, other) == off:
            raise BadInput(f"method.{key} = {value!r}: means nothing with method.{other} = {off!r}")
    if spec.curriculum != "constant" and spec.curriculum_end <= spec.curriculum_start:
        raise BadInput(
            f"method.curriculum_end = {spec.curriculum_end}: must come after "
            f"method.curriculum_start = {spec.curriculum_start}"
        )
    if reason := contradiction(spec, "scale" in user_set, forget):
        raise BadInput(reason)


def contradiction(spec: PrototypeSpec, scale_set: bool, forget: bool) -> str | None:
    """Returns why a combination of slots is impossible, or None."""
    refine, anchor = spec.refine, spec.anchor
    refinement, aggregation = spec.refinement, spec.aggregation
    if refinement.learns and spec.fixed:
        return f"method.anchor = {anchor!r}: refine = {refine!r} learns from the uploads of every round"
    if refinement.learns and spec.aggregate != "mean" and not aggregation.sends_products:
        return (
            f"method.aggregate = {spec.aggregate!r}: refine = {refine!r} learns from each client's own "
            "prototypes, not from an aggregate"
        )
    if spec.fixed and spec.initial != "none":
        return f"method.initial = {spec.initial!r}: with anchor = {anchor!r} prototypes are settled once"
    if anchor == "seed" and spec.aggregate != "mean":
        return f"method.aggregate = {spec.aggregate!r}: with anchor = 'seed' nothing is ever uploaded"
    if spec.fixed and forget:
        return f"method.forget = true: with anchor = {anchor!r} prototypes are settled once and never dropped"
    if aggregation.keeps_uploads and forget:
        return f"method.forget = true: aggregate = {spec.aggregate!r} goes on with every client's last upload"
    if aggregation.keeps_uploads and anchor == "first":
        return (
            f"method.aggregate = {spec.aggregate!r}: anchor = 'first' settles lengths before every client "
            "was heard, which its sum needs"
        )
    if spec.sparsity and refinement.no_masks:
        return f"method.sparsity = {spec.sparsity}: refine = {refine!r} {refinement.no_masks}"
    if spec.sparsity and anchor == "seed":
        return f"method.sparsity = {spec.sparsity}: with anchor = 'seed' nothing ever travels"
    if spec.distance_part.by_angle and scale_set and spec.scale != 1:
        return f"method.scale = {spec.scale}: distance = {spec.distance!r} compares directions, not lengths"
    return None


def check_plan(spec: PrototypeSpec, plan: Plan) -> None:
    """Raises BadInput if a method is impossible for the data, networks and split of a run."""
    check_dims(spec, *plan.dims)
    if spec.semi and not any(len(client.split.unlabelled) for client in plan.clients):
        raise BadInput(
            f"method.semi = {spec.semi}: no client has unlabelled samples; "
            "set partition.name = 'nway_kshot' and partition.unlabelled, or method.semi = 0"
        )
    if plan.config.log.distances and (reason := no_iterations_reason(spec, *plan.dims)):
        raise BadInput(f"log.distances = true: {reason}")


def check_dims(spec: PrototypeSpec, classes: int, features: int) -> None:
    """Raises BadInput if a method is impossible with so many classes or features."""
    if not spec.exchange:
        return
    if spec.sparsity > features:
        raise BadInput(f"method.sparsity = {spec.sparsity}: models.features has only {features} dimensions")
    refinement = spec.refinement
    if refinement.only_separates and sparse.disjoint(classes, features, spec.sparsity):
        raise BadInput(
            f"method.sparsity = {spec.sparsity}: {classes} classes in {features} dimensions share none, "
            f"so they are orthogonal and refine = {spec.refine!r} has nothing to do"
        )
    if classes < refinement.min_classes:
        needed = "two" if refinement.min_classes == 2 else refinement.min_classes
        raise BadInput(f"method.refine = {spec.refine!r}: needs {needed} classes, the data has {classes}")
    if features < refinement.min_features:
        raise BadInput(
            f"models.features = {features}: refine = {spec.refine!r} needs {refinement.min_features} or more"
        )
    if reason := refinement.impossible(classes, features):
        raise BadInput(f"models.features = {features}: refine = {spec.refine!r} {reason}")


def no_iterations_reason(spec: PrototypeSpec, classes: int, features: int) -> str | None:
    """Returns why the Thomson solver never runs with this method, or None if it does."""
    if "iterations" not in spec.options:
        return f"refine = {spec.refine!r} has no iterations"
    if spec.anchor == "seed":
        return "with anchor = 'seed' nothing is refined in any round"
    return spec.refinement.no_iterations(classes, features) or None


def remarks(spec: PrototypeSpec, classes: int, features: int, rounds: int) -> list[str]:
    """Returns sentences that a user should know about this combination."""
    geometry = spec.refinement.remark(classes, features)
    return [*([geometry] if geometry else []), *_phases(spec, rounds)]


def _phases(spec: PrototypeSpec, rounds: int) -> list[str]:
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
