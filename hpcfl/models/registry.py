"""`@register` on a function makes its name an architecture; groups are lists of such names.

Builders import torch when they are called: names are checked before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcfl.config import Models
from hpcfl.errors import unknown

if TYPE_CHECKING:
    from torch import nn

Builder = Callable[[tuple[int, ...], int], "nn.Module"]
"""(shape of one sample, d) → extractor from samples to d features."""


@dataclass(frozen=True)
class Architecture:
    """An extractor that can be asked for by name."""

    build: Builder
    about: str
    paper: str


@dataclass(frozen=True)
class Group:
    """Architectures that a paper trains together."""

    members: tuple[str, ...]
    paper: str


ARCHITECTURES: dict[str, Architecture] = {}
GROUPS: dict[str, Group] = {}


def register(paper: str) -> Callable[[Builder], Builder]:
    """Returns a decorator: the function's name is the key, its docstring's first line the description."""

    def add(build: Builder) -> Builder:
        about = (build.__doc__ or "").strip().splitlines()[0]
        ARCHITECTURES[build.__name__] = Architecture(build, about, paper)
        return build

    return add


def chosen(settings: Models) -> tuple[str, ...]:
    """Returns the architectures that the configuration names, in the order clients get them."""
    if settings.list is None:
        if settings.group not in GROUPS:
            raise unknown("models.group", settings.group, GROUPS)
        return GROUPS[settings.group].members
    for name in settings.list:
        if name not in ARCHITECTURES:
            raise unknown("models.list", name, ARCHITECTURES)
    return tuple(settings.list)
