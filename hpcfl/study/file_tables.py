"""The tables that a study file is made of, checked: grids, conditions, rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcfl.errors import BadInput, nearest
from hpcfl.study.cells import Condition, Rule
from hpcfl.study.keys import ALL_KEYS, SECTIONS, canonical, flatten, short_repr

TYPE_NAMES: dict[type, str] = {str: "a string", dict: "a table", list: "a list"}


def grid_of(table: Mapping[str, Any], location: str) -> dict[str, list[Any]]:
    """Returns the grid: full key → list of values."""
    grid = flatten(table.get("grid", {}), f"{location}grid: ")
    for key, values in grid.items():
        if not isinstance(values, list):
            raise BadInput(f"{location}grid: {key} = {short_repr(values)}: must be a list of values")
        if not values:
            raise BadInput(f"{location}grid: {key} = []: must have at least one value")
        texts: set[str] = set()
        for value in values:
            if (text := canonical(key, value)) in texts:
                raise BadInput(f"{location}grid: {key} has the value {short_repr(value)} twice")
            texts.add(text)
    return grid


def conditions(table: Mapping[str, Any], key: str, location: str) -> list[Condition]:
    """Returns the conditions in the list of tables under a key."""
    entries = enumerate(tables_of(table, key, location), 1)
    return [condition(entry, f"{location}{key} {number}: ") for number, entry in entries]


def condition(table: Mapping[str, Any], location: str) -> Condition:
    """Returns the condition that keys have these values, or one of those in a list."""
    settings = flatten(table, location)
    if not settings:
        raise BadInput(f"{location}names no key")
    for key, value in settings.items():
        if value == []:
            raise BadInput(f"{location}{key} = []: must have at least one value")
    return Condition(location, {key: _texts(key, value) for key, value in settings.items()})


def rules(table: Mapping[str, Any], key: str, location: str) -> list[Rule]:
    """Returns the rules in the list of tables under a key, each with `if` and `set`."""
    found = []
    for number, entry in enumerate(tables_of(table, key, location), 1):
        place = f"{location}{key} {number}: "
        check_table(entry, {"if": dict, "set": dict}, place)
        settings = flatten(entry.get("set", {}), f"{place}set: ")
        if not settings:
            raise BadInput(f"{place}sets nothing")
        found.append(Rule(condition(entry.get("if", {}), f"{place}if: "), settings))
    return found


def _texts(key: str, value: Any) -> set[str]:
    """Returns the canonical texts of a value and, if it is a list, of each of its items."""
    return {canonical(key, each) for each in (value, *(value if isinstance(value, list) else ()))}


def tables_of(table: Mapping[str, Any], key: str, location: str) -> list[dict[str, Any]]:
    """Returns the list of tables under a key, empty if the key is absent."""
    for each in table.get(key, []):
        if not isinstance(each, dict):
            raise BadInput(f"{location}{key}: {short_repr(each)} must be a table of keys")
    return table.get(key, [])


def check_table(table: Mapping[str, Any], allowed: Mapping[str, type], location: str) -> Mapping[str, Any]:
    """Returns the table if its keys and the types of their values are allowed; else raises."""
    for key, value in table.items():
        if key not in allowed:
            belongs = key in ALL_KEYS or key in SECTIONS
            hint = f"; {key} of the configuration goes into set" if belongs else nearest(key, allowed)
            raise BadInput(f"{location}unknown key {key}{hint}")
        if not isinstance(value, allowed[key]):
            tables = f", [[{key}]]" if allowed[key] is list and isinstance(value, dict) else ""
            type_name = TYPE_NAMES[allowed[key]]
            raise BadInput(f"{location}{key} = {short_repr(value)}: must be {type_name}{tables}")
    return table
