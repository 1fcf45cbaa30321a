"""Finds parts and algorithms by name: hpcfl's own, an entry point, or an import path. No torch of its own."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hpcfl.config.method import MethodConfig
from hpcfl.errors import BadInput, unknown
from hpcfl.methods.declarations import AggregatePart, DistancePart, Part, RefinementPart
from hpcfl.methods.parts import PARTS
from hpcfl.utils.user_code import IMPORT_PATH, import_object, place

ENTRY_POINTS = "hpcfl.methods"
"""The group of entry points by which an installed package registers algorithms and parts."""
KINDS: dict[str, type[Part]] = {
    "refine": RefinementPart,
    "aggregate": AggregatePart,
    "distance": DistancePart,
}
BASES = {
    "name": "hpcfl.algorithms.algorithm:Algorithm",
    "refine": "hpcfl.methods.refine.base:Refinement",
    "aggregate": "hpcfl.methods.aggregate:Aggregate",
}
"""The class that a user's own must be derived from, by key of [method]."""


@cache
def registered() -> dict[str, EntryPoint]:
    """Returns the entry points of installed packages, by name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def user_path(name: str) -> str | None:
    """Returns the import path of a name that is not hpcfl's own; None: it is no import path."""
    if name not in registered():
        return name if IMPORT_PATH.fullmatch(name) else None
    point = registered()[name]
    path = point.value.partition("[")[0].replace(" ", "")
    if not IMPORT_PATH.fullmatch(path):
        raise BadInput(f"entry point {name!r} of {ENTRY_POINTS}: {point.value!r} is not module:name")
    return path


def find_part(slot: str, name: str) -> Any:
    """Returns what a part declares about itself; raises BadInput if there is none of this name."""
    known = PARTS[slot]
    if name in known:
        return known[name]
    path = user_path(name)
    if path is None:
        raise unknown(f"method.{slot}", name, [*known, *registered()])
    part = KINDS[slot].of(path, load_user_object(slot, path))
    if taken := sorted(part.Options.model_fields.keys() & MethodConfig.model_fields.keys()):
        raise BadInput(f"method.{slot}: {path} has the option {taken[0]!r}, a key of [method] already")
    return part


def load_user_object(slot: str, path: str) -> Any:
    """Returns the user's class or function for a key of [method]; raises BadInput if it is something else."""
    found = import_object(f"method.{slot}", path)
    if slot == "distance":
        if not callable(found) or isinstance(found, type):
            kind = "a function (features, prototypes) → distances"
            raise BadInput(f"method.distance: {path}{place(found)} is not {kind}")
        return found
    base = load(BASES[slot])
    if not isinstance(found, type) or not issubclass(found, base) or found is base:
        kind = f"a class derived from {base.__module__}.{base.__name__}"
        raise BadInput(f"method.{slot}: {path}{place(found)} is not {kind}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise BadInput(f"method.{slot}: {path}{place(found)} does not define {', '.join(missing)}")
    return found


def load(path: str) -> Any:
    """Returns the class or function of a part or an algorithm."""
    return import_object("method", path)
