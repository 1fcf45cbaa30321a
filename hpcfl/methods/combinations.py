"""The table of slots that can be combined: every pair of slot values is checked. Does not import torch."""

from __future__ import annotations

from itertools import combinations
from typing import Any, get_args

from hpcfl.config.method import AnchorName, ClassWeightsName, CurriculumName, MethodConfig
from hpcfl.errors import BadInput
from hpcfl.methods.catalogue import method_spec
from hpcfl.methods.parts import AGGREGATES, DISTANCES, REFINEMENTS

CHOICES: dict[str, tuple[Any, ...]] = {
    "refine": tuple(REFINEMENTS),
    "aggregate": tuple(AGGREGATES),
    "anchor": get_args(AnchorName),
    "initial": ("random",),
    "distance": tuple(DISTANCES),
    "scale": (2.0,),
    "sparsity": (0.5,),
    "infer": ("head", "global", "local"),
    "prototypes": ("eval", "running", "before"),
    "forget": (True,),
    "own_classes": (True,),
    "class_weights": get_args(ClassWeightsName),
    "curriculum": get_args(CurriculumName),
    "proxy": (1.0,),
    "semi": (100,),
}
"""The values of every slot that are checked; for a number, one value that is not its default."""

BASE = "fedproto"
"""The method whose slots are replaced."""


def refusal(**slots: Any) -> str | None:
    """Returns why these slots cannot be combined, or None if they can."""
    try:
        method_spec(MethodConfig(name=BASE, weight=1.0, **slots), data="any")
    except BadInput as error:
        return str(error)
    return None


def refused_pairs() -> list[tuple[tuple[str, Any], tuple[str, Any], str]]:
    """Returns every pair of slot values that is refused, with the reason."""
    refused = []
    for one, other in combinations(CHOICES, 2):
        for a in CHOICES[one]:
            for b in CHOICES[other]:
                if reason := refusal(**{one: a, other: b}):
                    refused.append(((one, a), (other, b), reason))
    return refused


def table() -> str:
    """Returns a Markdown table of refinements against other slots, and the reasons of all refusals."""
    refused = refused_pairs()
    named = {slot for one, other, _ in refused for slot, _ in (one, other)} - {"refine"}
    columns = [(slot, value) for slot, values in CHOICES.items() for value in values if slot in named]
    lines = [
        "| refine | "
        + " | ".join(slot if len(CHOICES[slot]) == 1 else value for slot, value in columns)
        + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for refine in CHOICES["refine"]:
        cells = ("–" if refusal(refine=refine, **{slot: value}) else "✓" for slot, value in columns)
        lines.append(f"| {refine} | " + " | ".join(cells) + " |")
    free = ", ".join(f"`{slot}`" for slot in CHOICES if slot not in named | {"refine"})
    lines += ["", f"{free} combine with everything. Refused, with these reasons:"]
    disjoint = "where so few dimensions per class share none (then prototypes are orthogonal already)"
    refusals = [reason for *_, reason in refused]
    separating = " or ".join(repr(name) for name, part in REFINEMENTS.items() if part.only_separates)
    refusals.append(f"method.sparsity with refine = {separating}: {disjoint}")
    return "\n".join([*lines, *(f"- {reason}" for reason in refusals)])
