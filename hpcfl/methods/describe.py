"""What a method or a part is, with its options, as tables. Loads torch for a user's own code only."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from hpcfl.config.method import MethodConfig
from hpcfl.config.section import Section
from hpcfl.errors import unknown
from hpcfl.methods.baseline_metrics import ACCURACY_TRAINED
from hpcfl.methods.catalogue import CATALOGUE, find_method
from hpcfl.methods.declarations import Part
from hpcfl.methods.declared_metrics import ACCURACY_GLOBAL
from hpcfl.methods.parts import PARTS
from hpcfl.methods.plugins import BASES, find_part, load, registered, user_path
from hpcfl.methods.spec import AlgorithmSpec, PrototypeSpec
from hpcfl.utils.user_code import import_object

Rows = list[tuple[str, ...]]
LARGE = 10**6
"""Limits that are at least as large only keep out mistakes, and are not shown."""

INFERENCES = {
    "trained": (ACCURACY_TRAINED, "by the head after the download, or as trained, before it"),
    "global": (ACCURACY_GLOBAL, "by the head, or by the nearest global prototype"),
}
"""What a baseline may have as `method.infer` beside the head: the metric that it needs, and the meaning."""


def describe(name: str) -> dict[str, Rows]:
    """Returns tables by title of everything that has this name; raises BadInput if nothing has it."""
    tables: dict[str, Rows] = {}
    keys = [key for key, known in {"name": CATALOGUE, **PARTS}.items() if name in known]
    for key in keys or _keys_of_path(name):
        entry = find_method(name) if key == "name" else find_part(key, name)
        tables |= _tables(f"method.{key} = {name!r}", entry)
    return tables


def _keys_of_path(name: str) -> list[str]:
    """Returns the key of [method] that takes this import path or entry point."""
    path = user_path(name)
    if path is None:
        known = [*CATALOGUE, *(part for parts in PARTS.values() for part in parts), *registered()]
        raise unknown("NAME", name, dict.fromkeys(known))
    found = import_object("NAME", path)
    if isinstance(found, type):
        return [key for key, base in BASES.items() if issubclass(found, load(base))] or ["name"]
    return ["distance"]


def _tables(title: str, entry: AlgorithmSpec | Part) -> dict[str, Rows]:
    path = entry.algorithm if isinstance(entry, AlgorithmSpec) else entry.path
    about: Rows = [("about", entry.about), ("paper", entry.paper), ("code", path)]
    if isinstance(entry, AlgorithmSpec) and entry.page:
        about.append(("page", f"docs/methods/{entry.page}.md"))
    about += [(name, value) for name, value in _declarations(entry).items()]
    return {title: about, f"options of {title}": _options(entry)}


def _declarations(entry: AlgorithmSpec | Part) -> Mapping[str, str]:
    """Returns what a part declares beside its options, where it differs from the default."""
    if isinstance(entry, AlgorithmSpec):
        declared = ("equal_heads", "equal_networks", "head_kind")
        return {name: str(getattr(entry, name)) for name in declared if getattr(entry, name)}
    known = {"path", "about", "paper", "Options"}
    default = type(entry)(path="")
    return {
        name: str(value)
        for name, value in vars(entry).items()
        if name not in known and not callable(value) and value != getattr(default, name)
    }


def _options(entry: AlgorithmSpec | Part) -> Rows:
    """Returns the options of an entry: key, type, default and meaning."""
    rows = _fields(entry.Options)
    if isinstance(entry, AlgorithmSpec) and not isinstance(entry, PrototypeSpec):
        return rows + [
            ("method.infer", f"head | {name}", entry.infer, f"Accuracy that counts: {meaning}.")
            for name, (metric, meaning) in INFERENCES.items()
            if metric in entry.metrics
        ]
    if not isinstance(entry, PrototypeSpec) or not entry.exchange:
        return rows
    slots = {key: value for key, value in entry.slots().items() if key in MethodConfig.model_fields}
    rows += _fields(MethodConfig, slots)
    return rows + _fields(entry.refinement.Options, entry.options) + _fields(entry.aggregation.Options)


def _fields(options: type[Section], values: Mapping[str, Any] | None = None) -> Rows:
    """Returns a row for each option; `values` replace defaults, and for [method] choose the options."""
    shown = options.model_fields
    if options is MethodConfig:
        shown = {name: field for name, field in shown.items() if name in (values or {})}
    return [
        (f"method.{name}", type_text(field), _default(field, name, values or {}), field.description or "")
        for name, field in shown.items()
    ]


def _default(field: FieldInfo, name: str, values: Mapping[str, Any]) -> str:
    if name not in values and field.is_required():
        return "required"
    value = values[name] if name in values else field.get_default(call_default_factory=True)
    return "unset" if value is None else str(value)


def type_text(field: FieldInfo) -> str:
    """Returns the type of an option with its limits: `float > 0`, `int 1 … 10`, `mse | cosine`."""
    text, limits = _annotation_text(field.annotation), []
    for limit in field.metadata:
        for kind, sign, name in ((Gt, ">", "gt"), (Ge, "≥", "ge"), (Lt, "<", "lt"), (Le, "≤", "le")):
            if isinstance(limit, kind) and abs(value := getattr(limit, name)) < LARGE:
                limits.append(f"{sign} {value}")
    return " ".join([text, *limits])


def _annotation_text(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_annotation_text(each) for each in get_args(annotation) if each is not type(None))
    if hasattr(annotation, "__metadata__"):
        return type_text(FieldInfo.from_annotation(annotation))
    return getattr(annotation, "__name__", str(annotation))
