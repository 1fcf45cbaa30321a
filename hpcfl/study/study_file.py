"""A study file: TOML with a base configuration, blocks of cells, exclusions and a small scale."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcfl.config.loading import parse_setting, parse_toml, read_text
from hpcfl.errors import BadInput, nearest
from hpcfl.log.reader import study_title
from hpcfl.study.cells import Cell, CellBlock, Exclusion, cells
from hpcfl.study.keys import KNOWN, RANKS, SECTIONS, Settings, canonical, flatten, merge_settings, short_repr

SCALES = ("full", "small")
CELLS = {"set": dict, "grid": dict, "cells": list, "exclude": list}
FILE = {"about": str, "config": str, "set": dict, "block": list, "exclude": list, "small": dict}
NOUNS: dict[type, str] = {str: "a string", dict: "a table", list: "a list"}
BLOCK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True)
class Study:
    """A study at one of its scales."""

    name: str
    """The stem of its file's name."""
    scale: str
    about: str
    path: Path
    text: str
    """The file as it was read."""
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """Its name, marked unless its scale is the full one."""
        return study_title(self.name, self.scale)

    @property
    def slug(self) -> str:
        """The same as part of a file's name."""
        return self.name if self.scale == "full" else f"{self.name}-{self.scale}"

    def place(self, out: str | None) -> Path:
        """Returns its directory: `out`, or one whose name has the scale in it."""
        path = Path(out) if out is not None else Path("runs") / self.slug
        if out == "" or path.is_file():
            raise BadInput(f"--out {str(out or path)!r}: must be a directory")
        return path


def read_study(path: str | Path, scale: str = "full", settings: Sequence[str] = ()) -> Study:
    """Returns a study with `KEY=VALUE` on top of every cell; a bad cell says so, a bad study raises."""
    path = Path(path)
    if scale not in SCALES:
        raise BadInput(f"--scale {scale}: allowed is {' or '.join(SCALES)}{nearest(scale, SCALES)}")
    content = read_text(path, "study")
    tables = parse_toml(content, path)
    asked: Settings = {}
    for each in settings:
        key, value = parse_setting(each)
        asked |= flatten({key: value}, f"--set {each}: ")
    try:
        table = _checked(tables, FILE, "")
        made = _cells(table, path.parent, scale == "small", asked)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return Study(path.stem, scale, table.get("about", ""), path, content, made)


def _cells(table: Mapping[str, Any], folder: Path, small: bool, asked: Settings) -> tuple[Cell, ...]:
    blocks = _tables(table, "block", "")
    if not blocks:
        raise BadInput("no cells: write at least one [[block]]")
    if small and "small" not in table and not any("small" in block for block in blocks):
        raise BadInput("no scale 'small': neither [small] nor [block.small] is there")
    base = merge_settings(_base(table, folder), flatten(table.get("set", {}), "[set]: "))
    less = _checked(table.get("small", {}), {"set": dict}, "[small]: ")
    on_top = flatten(less.get("set", {}), "[small] set: ")
    base = merge_settings(base, on_top) if small else base
    made = [_block(block, number, base, small) for number, block in enumerate(blocks, 1)]
    names: set[str] = set()
    for block in made:
        if block.name.lower() in names:
            raise BadInput(f"several blocks are called {block.name!r}")
        names.add(block.name.lower())
    return cells(made, _exclusions(table, ""), asked, strict=not small and not asked)


def _base(table: Mapping[str, Any], folder: Path) -> Settings:
    """Returns what the base configuration sets."""
    if "config" not in table:
        return {}
    path = folder / table["config"]
    settings = flatten(parse_toml(read_text(path), path), f"{path}: ")
    if RANKS in settings:
        raise BadInput(f"{path}: {RANKS} is not a key of a configuration; it goes into set")
    return settings


def _block(table: Mapping[str, Any], number: int, base: Settings, small: bool) -> CellBlock:
    place = f"block {number}: "
    _checked(table, CELLS | {"name": str, "small": dict}, place)
    name = table.get("name", "")
    if not BLOCK_NAME.fullmatch(name):
        raise BadInput(
            f"{place}name = {short_repr(name)}: a block needs a name of letters, digits and _ "
            "that starts with a letter (at most 40)"
        )
    if name.lower() == "study":
        raise BadInput(f"{place}name = {name!r}: study.h5 is where results are merged; choose another name")
    place = f"block {name!r}, "
    less = _checked(table.get("small", {}), CELLS, f"{place}small: ")
    settings = base
    grid: dict[str, list[Any]] = {}
    entries: list[Settings] = [{}]
    exclusions: list[Exclusion] = []
    # what belongs to the small scale is looked at in any case, so that its mistakes show
    for part, where in ((table, place), (less, f"{place}small ")):
        on_top = flatten(part.get("set", {}), f"{where}set: ")
        lists = _grid(part, where)
        listed = _entries(part, where)
        left_out = _exclusions(part, where)
        if part is table or small:
            settings, grid = merge_settings(settings, on_top), grid | lists
            entries, exclusions = listed or entries, exclusions + left_out
    for key in grid:
        if any(key in entry for entry in entries):
            raise BadInput(f"{place.removesuffix(', ')}: {key} is in the grid and in the cells")
    return CellBlock(name, settings, entries, grid, exclusions)


def _grid(table: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """Returns the list of every key."""
    grid = flatten(table.get("grid", {}), f"{where}grid: ")
    for key, values in grid.items():
        if not isinstance(values, list):
            raise BadInput(f"{where}grid: {key} = {short_repr(values)}: must be a list of values")
        if not values:
            raise BadInput(f"{where}grid: {key} = []: must have at least one value")
        seen: set[str] = set()
        for value in values:
            if (said := canonical(key, value)) in seen:
                raise BadInput(f"{where}grid: {key} has the value {short_repr(value)} twice")
            seen.add(said)
    return grid


def _entries(table: Mapping[str, Any], where: str) -> list[Settings]:
    """Returns the cells of the list."""
    if table.get("cells") == []:
        raise BadInput(f"{where}cells = []: must have at least one cell")
    entries = [
        flatten(entry, f"{where}cell {number}: ")
        for number, entry in enumerate(_tables(table, "cells", where), 1)
    ]
    seen: dict[str, int] = {}
    for number, entry in enumerate(entries, 1):
        said = repr(sorted((key, canonical(key, value)) for key, value in entry.items()))
        if said in seen:
            raise BadInput(f"{where}cells {seen[said]} and {number} are the same")
        seen[said] = number
    return entries


def _exclusions(table: Mapping[str, Any], where: str) -> list[Exclusion]:
    found = []
    for number, each in enumerate(_tables(table, "exclude", where), 1):
        place = f"{where}exclude {number}: "
        wanted = flatten(each, place)
        if not wanted:
            raise BadInput(f"{place}names no key")
        for key, value in wanted.items():
            if value == []:
                raise BadInput(f"{place}{key} = []: must have at least one value")
        found.append(Exclusion(place, {key: _texts(key, value) for key, value in wanted.items()}))
    return found


def _texts(key: str, value: Any) -> set[str]:
    """Returns the value itself and, of a list, each of its values."""
    return {canonical(key, each) for each in (value, *(value if isinstance(value, list) else ()))}


def _tables(table: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Returns a list of tables, empty if it is not there."""
    for each in table.get(key, []):
        if not isinstance(each, dict):
            raise BadInput(f"{where}{key}: {short_repr(each)} must be a table of keys")
    return table.get(key, [])


def _checked(table: Mapping[str, Any], allowed: Mapping[str, type], place: str) -> Mapping[str, Any]:
    """Returns the table if all its keys are known and of their types."""
    for key, value in table.items():
        if key not in allowed:
            belongs = key in KNOWN or key in SECTIONS
            hint = f"; {key} of the configuration goes into set" if belongs else nearest(key, allowed)
            raise BadInput(f"{place}unknown key {key}{hint}")
        if not isinstance(value, allowed[key]):
            tables = f", [[{key}]]" if key in ("block", "exclude") and isinstance(value, dict) else ""
            raise BadInput(f"{place}{key} = {short_repr(value)}: must be {NOUNS[allowed[key]]}{tables}")
    return table
