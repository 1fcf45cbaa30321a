"""Full names of configuration keys, and what becomes of a key that is set twice."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from hpcfl.config.identity import keys
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput, nearest

RANKS = "ranks"
"""The one key of a cell that is not a key of the configuration: its number of MPI ranks."""
KNOWN = dict.fromkeys([*keys(), RANKS])
"""Every key, in order."""
SECTIONS = {key.rpartition(".")[0] for key in KNOWN} - {""}
TABLE_KEYS = tuple(key for key in keys() if isinstance(attrgetter(key)(Config()), dict))
"""Keys whose values are tables of the user's own names; `models.pretrained.resnet18` sets one of them."""
INT_IS_NOT_FLOAT = {"federation.participation", "method.sparsity"}
"""Here 1 is a number (of clients, of dimensions) and 1.0 a share; elsewhere they are the same."""

Settings = dict[str, Any]
"""Full key → value."""


def flatten(table: Mapping[str, Any], place: str, prefix: str = "") -> Settings:
    """Returns nested tables and dotted names as full keys; `place` leads the sentence about a bad one."""
    found: Settings = {}
    for name, value in table.items():
        key = prefix + name
        if key in SECTIONS and isinstance(value, dict):
            inner = flatten(value, place, f"{key}.")
        elif key in KNOWN or _owner(key):
            inner = {key: value}
        elif key in SECTIONS:
            raise BadInput(f"{place}{key} = {short_repr(value)}: must be a table of keys")
        else:
            raise BadInput(f"{place}unknown key {key}{nearest(key, KNOWN)}")
        for twice in inner.keys() & found.keys():
            raise BadInput(f"{place}{twice} is given twice")
        found |= inner
    return found


def merge_settings(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Settings:
    """Returns `lower` with `upper` on top; a group of networks replaces a list, and a list a group."""
    result = dict(lower)
    if "models.list" in upper and "models.group" not in upper:
        result.pop("models.group", None)
    if "models.group" in upper and "models.list" not in upper:
        result.pop("models.list", None)
        result.pop("models.weights", None)
    for key, value in upper.items():
        if owner := _owner(key):
            old = result.get(owner)
            result[owner] = (old if isinstance(old, dict) else {}) | {key.removeprefix(f"{owner}."): value}
        else:
            result[key] = value
    return result


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns full keys as nested tables."""
    tables: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, last = key.rpartition(".")
        (tables.setdefault(section, {}) if section else tables)[last] = value
    return tables


def canonical(key: str, value: Any) -> str:
    """Returns a text that is equal for two values if they mean the same."""
    if isinstance(value, float) and value.is_integer() and key not in INT_IS_NOT_FLOAT:
        value = int(value)
    return repr(value)


def display_value(key: str, value: Any) -> str:
    """Returns the same for tables: strings without quotes, truth as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else canonical(key, value)


def short_repr(value: Any) -> str:
    """Returns a value for a sentence."""
    said = repr(value)
    return said if len(said) <= 60 else said[:57] + "…"


def _owner(key: str) -> str:
    """Returns the key whose table this one is an entry of, or nothing."""
    return next((owner for owner in TABLE_KEYS if key.startswith(f"{owner}.")), "")
