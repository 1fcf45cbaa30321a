"""Full names of configuration keys, and how settings are merged, nested and compared."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from hpcfl.config.identity import keys
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput, nearest_key
from hpcfl.methods.catalogue import OPTION_NAMES

RANKS = "ranks"
"""The number of MPI ranks: the one key of a cell that is not a key of the configuration."""
ALL_KEYS = dict.fromkeys([*keys(), *(f"method.{name}" for name in OPTION_NAMES), RANKS])
"""All keys that a cell may set, in order; beside them the options of a user's own method and parts."""
SECTIONS = {key.rpartition(".")[0] for key in ALL_KEYS} - {""}
TABLE_KEYS = tuple(key for key in keys() if isinstance(attrgetter(key)(Config()), dict))
"""Keys whose value is a table with free names; `models.pretrained.resnet18` sets one entry."""
INT_IS_NOT_FLOAT = {"federation.participation", "method.sparsity"}
"""Keys for which 1 is a count (of clients, of dimensions) and 1.0 a share; elsewhere they are the same."""

Settings = dict[str, Any]
"""Full key → value."""


def flatten(table: Mapping[str, Any], location: str, prefix: str = "") -> Settings:
    """Returns nested tables and dotted names as full keys; error messages begin with `location`."""
    settings: Settings = {}
    for name, value in table.items():
        key = prefix + name
        if key in SECTIONS and isinstance(value, dict):
            inner = flatten(value, location, f"{key}.")
        elif key in ALL_KEYS or _table_key(key) or _may_be_option(key):
            inner = {key: value}
        elif key in SECTIONS:
            raise BadInput(f"{location}{key} = {short_repr(value)}: must be a table of keys")
        else:
            raise BadInput(f"{location}unknown key {key}{nearest_key(key, ALL_KEYS)}")
        for duplicate in inner.keys() & settings.keys():
            raise BadInput(f"{location}{duplicate} is given twice")
        settings |= inner
    return settings


def merge_settings(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Settings:
    """Returns `lower` overridden by `upper`; models.group replaces models.list, and the other way round."""
    result = dict(lower)
    if "models.list" in upper and "models.group" not in upper:
        result.pop("models.group", None)
    if "models.group" in upper and "models.list" not in upper:
        result.pop("models.list", None)
        result.pop("models.weights", None)
    for key, value in upper.items():
        if table_key := _table_key(key):
            old = result.get(table_key)
            entry = {key.removeprefix(f"{table_key}."): value}
            result[table_key] = (old if isinstance(old, dict) else {}) | entry
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
    """Returns a text that is equal for two values of a key if they mean the same."""
    if isinstance(value, float) and value.is_integer() and key not in INT_IS_NOT_FLOAT:
        value = int(value)
    return repr(value)


def short_repr(value: Any) -> str:
    """Returns a value for an error message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _may_be_option(key: str) -> bool:
    """Returns whether a key may be an option of the user's own code; a cell's check decides it."""
    section, _, name = key.partition(".")
    return section == "method" and name.isidentifier()


def _table_key(key: str) -> str:
    """Returns the table key that this key is an entry of, or an empty string."""
    return next((table_key for table_key in TABLE_KEYS if key.startswith(f"{table_key}.")), "")
