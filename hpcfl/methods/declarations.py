"""What a part of a prototype method declares about itself. Does not import torch.

Which parts go together (`rules`) follows from these declarations. A class or function of the user's own
declares the same as attributes: see `Refinement`, `Aggregate` and `local_loss.distance`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import Any, TypeVar

from hpcfl.config.section import Section
from hpcfl.errors import BadInput
from hpcfl.utils.user_code import place


class NoOptions(Section):
    pass


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a method: where it is, and the keys of `[method]` that are its options."""

    path: str
    """`module:Class`; for a distance `module:function`."""
    about: str = ""
    paper: str = "–"
    Options: type[Section] = NoOptions

    @classmethod
    def of(cls, path: str, found: object) -> Any:
        """Returns the part that a class or function declares by its docstring and its attributes."""
        declared: dict[str, Any] = {"about": (found.__doc__ or "").strip().partition("\n")[0]}
        for field in fields(cls):
            if field.name not in ("path", "about") and hasattr(found, field.name):
                declared[field.name] = _checked(path, found, field, getattr(found, field.name))
        return cls(path=path, **declared)


T = TypeVar("T")


def declares(part: Part) -> Callable[[T], T]:
    """Returns a decorator that gives a class or function the declarations of its entry as attributes."""

    def set_attributes(found: T) -> T:
        for field in fields(part):
            if field.name not in ("path", "about"):
                value = getattr(part, field.name)
                is_function = callable(field.default) and not isinstance(field.default, type)
                setattr(found, field.name, staticmethod(value) if is_function else value)
        return found

    return set_attributes


def _checked(path: str, found: object, field: Field[Any], value: Any) -> Any:
    """Returns a declared value; raises BadInput if it has another type than the default."""
    if field.name == "Options":
        fits, kind = isinstance(value, type) and issubclass(value, Section), "a class derived from Section"
    elif callable(field.default):
        fits, kind = callable(value), "a function (classes, features) → text"
    elif field.default is None:
        fits, kind = value is None or type(value) in (int, float), "a number"
    else:
        fits, kind = type(value) is type(field.default), f"of type {type(field.default).__name__}"
    if not fits:
        raise BadInput(f"{path}{place(found)}: {field.name} = {value!r} must be {kind}")
    return value


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
