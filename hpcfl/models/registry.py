"""The registry of architectures (`@register`) and of groups of them.

Builders import torch only when called, so names are checked before torch is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcfl.config.schema import ModelsConfig
from hpcfl.errors import BadInput, unknown
from hpcfl.utils.user_code import IMPORT_PATH, import_object

if TYPE_CHECKING:
    from torch import nn

Builder = Callable[[tuple[int, ...], int], "nn.Module"]
"""A function (shape of one sample, d) → extractor with d features."""


@dataclass(frozen=True)
class Architecture:
    """A registered extractor."""

    build: Builder
    about: str
    paper: str
    images: bool = False
    """Whether it takes images only."""
    dropout: float = 0.0
    """Dropout probability between features and head."""
    published_form_of: str = ""
    """The architecture that this one replaces where `models.style = "published"`."""
    low_level: str = ""
    """The layer whose output, flattened, is the lower level of features; empty: none is known."""


@dataclass(frozen=True)
class Group:
    """Architectures that a paper trains together."""

    members: tuple[str, ...]
    paper: str


ARCHITECTURES: dict[str, Architecture] = {}
GROUPS: dict[str, Group] = {}
HEADS: dict[str, tuple[int, ...]] = {"linear": (), "mlp512": (512,), "mlp256": (256,), "mlp128": (128,)}
"""Heads by name: the widths of the hidden layers between d features and K classes."""
RELU = "-relu"
"""The names of heads with a ReLU after the last layer, too, end with this."""
HEADS |= {name + RELU: widths for name, widths in HEADS.items()}
UNIT_HEAD = "unit"
"""The linear head that reads features of length 1."""
HEADS[UNIT_HEAD] = ()
PROTOTYPE_HEAD = "prototypes"
"""The head of fixed unit prototypes, which only a method can choose."""
HEAD_GROUPS = {"htc4": ("linear", "mlp512", "mlp256", "mlp128")}
"""Groups of heads: FedTGP's heterogeneous classifiers; client i gets head i modulo the group's size."""


def register(
    paper: str, images: bool = False, dropout: float = 0.0, published_form_of: str = "", low_level: str = ""
) -> Callable[[Builder], Builder]:
    """Returns a decorator: the function's name is the key, its docstring's first line the description."""

    def add(build: Builder) -> Builder:
        about = (build.__doc__ or "").strip().splitlines()[0]
        ARCHITECTURES[build.__name__] = Architecture(
            build, about, paper, images, dropout, published_form_of, low_level
        )
        return build

    return add


def find_architecture(name: str) -> Architecture:
    """Returns an architecture by name or import path; the working directory is searched too."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    build = import_object("models", name)
    if not callable(build):
        raise BadInput(f"models: {name} is not a function (shape, features) → network")
    return Architecture(build, "your own", "–", low_level=getattr(build, "low_level", ""))


def is_user_defined(architecture: str) -> bool:
    """Returns whether an architecture is given by import path."""
    return ":" in architecture


def client_architectures(settings: ModelsConfig, head_kind: str = "") -> tuple[str, ...]:
    """Returns the architectures that clients get in turn, each as `extractor` or `extractor/head`.

    `head_kind` is the head that the method gives to all clients; empty: as the settings say.
    """
    group, head = settings.group, settings.head
    if settings.list is not None:
        for name in settings.list:
            if name not in ARCHITECTURES and not IMPORT_PATH.fullmatch(name):
                raise unknown("models.list", name, ARCHITECTURES)
        weights = settings.weights or [1] * len(settings.list)
        names = [name for name, weight in zip(settings.list, weights, strict=True) for _ in range(weight)]
    else:
        if group not in GROUPS and group.endswith("-htc4"):
            group, head = group.removesuffix("-htc4"), "htc4"
            if settings.head not in ("linear", "htc4"):
                raise BadInput(
                    f"models.head = {settings.head!r}: models.group = {settings.group!r} has its own"
                )
        if group in GROUPS:
            names = list(GROUPS[group].members)
        elif group in ARCHITECTURES or IMPORT_PATH.fullmatch(group):
            names = [group]
        else:
            raise unknown("models.group", group, [*GROUPS, *ARCHITECTURES])
    if head_kind and head != "linear":
        raise BadInput(f"models.head = {head!r}: the method gives all clients the head {head_kind!r}")
    heads: tuple[str, ...] = HEAD_GROUPS.get(head, (head_kind or head,))
    if settings.style == "published":
        names = [_published_form(name) for name in names]
        heads = tuple(each if head in ("linear", UNIT_HEAD) else each + RELU for each in heads)
    period = math.lcm(len(names), len(heads))
    return tuple(full_name(names[i % len(names)], heads[i % len(heads)]) for i in range(period))


def _published_form(name: str) -> str:
    """Returns the form of an architecture that the papers' code has; the same where it has no other."""
    forms = {entry.published_form_of: form for form, entry in ARCHITECTURES.items()}
    return forms.get(name, name)


def base_name(extractor: str) -> str:
    """Returns the architecture of which an extractor is the published form; else the extractor itself."""
    known = ARCHITECTURES.get(extractor)
    return known.published_form_of if known and known.published_form_of else extractor


def full_name(extractor: str, head: str) -> str:
    """Returns the name of an extractor with a head."""
    return extractor if head == "linear" else f"{extractor}/{head}"


def split_name(architecture: str) -> tuple[str, str]:
    """Returns the extractor and head of a full name."""
    extractor, _, head = architecture.partition("/")
    return extractor, head or "linear"
