"""Reads a study file: TOML with a base configuration, blocks of cells, exclusions and a small scale."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcfl.config.loading import parse_setting, parse_toml, read_text
from hpcfl.errors import BadInput, nearest
from hpcfl.log.reader import study_title
from hpcfl.share.lookup import find_study
from hpcfl.study.cells import Cell, CellBlock, Exclusion, make_cells
from hpcfl.study.keys import (
    ALL_KEYS,
    RANKS,
    SECTIONS,
    Settings,
    canonical,
    flatten,
    merge_settings,
    short_repr,
)

SCALES = ("full", "small")
CELL_TYPES = {"set": dict, "grid": dict, "cells": list, "exclude": list}
"""Keys of [[block]] and [block.small], with their types."""
FILE_TYPES = {"about": str, "config": str, "set": dict, "block": list, "exclude": list, "small": dict}
"""Keys of the file, with their types."""
TYPE_NAMES: dict[type, str] = {str: "a string", dict: "a table", list: "a list"}
BLOCK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True)
class Study:
    """A study at one of its scales."""

    name: str
    """Stem of the file's name."""
    scale: str
    about: str
    path: Path
    text: str
    """Content of the file."""
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """The name for messages, with the scale unless it is full."""
        return study_title(self.name, self.scale)

    @property
    def slug(self) -> str:
        """The name for files, with the scale unless it is full."""
        return self.name if self.scale == "full" else f"{self.name}-{self.scale}"

    def directory(self, out: str | None) -> Path:
        """Returns the directory of its logs: `out`, or runs/ and the slug."""
        path = Path(out) if out is not None else Path("runs") / self.slug
        if out == "" or path.is_file():
            raise BadInput(f"--out {str(out or path)!r}: must be a directory")
        return path


def read_study(path: str | Path, scale: str = "full", settings: Sequence[str] = ()) -> Study:
    """Returns a study, from a file or shipped under that name, with the `KEY=VALUE` settings in every cell.

    An invalid study raises BadInput; an invalid cell has its `problem` set.
    """
    path = find_study(path)
    if scale not in SCALES:
        raise BadInput(f"--scale {scale}: allowed is {' or '.join(SCALES)}{nearest(scale, SCALES)}")
    content = read_text(path, "study")
    tables = parse_toml(content, path)
    overrides: Settings = {}
    for setting in settings:
        key, value = parse_setting(setting)
        overrides |= flatten({key: value}, f"--set {setting}: ")
    try:
        table = _check_table(tables, FILE_TYPES, "")
        cells = _cells(table, path.parent, scale == "small", overrides)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return Study(path.stem, scale, table.get("about", ""), path, content, cells)


def _cells(table: Mapping[str, Any], folder: Path, small: bool, overrides: Settings) -> tuple[Cell, ...]:
    blocks = _tables(table, "block", "")
    if not blocks:
        raise BadInput("no cells: write at least one [[block]]")
    if small and "small" not in table and not any("small" in block for block in blocks):
        raise BadInput("no scale 'small': neither [small] nor [block.small] is there")
    base = merge_settings(_base(table, folder), flatten(table.get("set", {}), "[set]: "))
    small_table = _check_table(table.get("small", {}), {"set": dict}, "[small]: ")
    small_settings = flatten(small_table.get("set", {}), "[small] set: ")
    base = merge_settings(base, small_settings) if small else base
    cell_blocks = [_block(block, number, base, small) for number, block in enumerate(blocks, 1)]
    names: set[str] = set()
    for block in cell_blocks:
        if block.name.lower() in names:
            raise BadInput(f"several blocks are called {block.name!r}")
        names.add(block.name.lower())
    return make_cells(cell_blocks, _exclusions(table, ""), overrides, strict=not small and not overrides)


def _base(table: Mapping[str, Any], folder: Path) -> Settings:
    """Returns the settings of the base configuration file, if there is one."""
    if "config" not in table:
        return {}
    path = folder / table["config"]
    settings = flatten(parse_toml(read_text(path), path), f"{path}: ")
    if RANKS in settings:
        raise BadInput(f"{path}: {RANKS} is not a key of a configuration; it goes into set")
    return settings


def _block(table: Mapping[str, Any], number: int, base: Settings, small: bool) -> CellBlock:
    location = f"block {number}: "
    _check_table(table, CELL_TYPES | {"name": str, "small": dict}, location)
    name = table.get("name", "")
    if not BLOCK_NAME.fullmatch(name):
        raise BadInput(
            f"{location}name = {short_repr(name)}: a block needs a name of letters, digits and _ "
            "that starts with a letter (at most 40)"
        )
    if name.lower() == "study":
        raise BadInput(
            f"{location}name = {name!r}: study.h5 is where results are merged; choose another name"
        )
    location = f"block {name!r}, "
    small_table = _check_table(table.get("small", {}), CELL_TYPES, f"{location}small: ")
    settings = base
    grid: dict[str, list[Any]] = {}
    entries: list[Settings] = [{}]
    exclusions: list[Exclusion] = []
    # the part for the small scale is checked at full scale too, so that mistakes in it are reported
    for part, part_location in ((table, location), (small_table, f"{location}small ")):
        part_settings = flatten(part.get("set", {}), f"{part_location}set: ")
        part_grid = _grid(part, part_location)
        part_entries = _entries(part, part_location)
        part_exclusions = _exclusions(part, part_location)
        if part is table or small:
            settings, grid = merge_settings(settings, part_settings), grid | part_grid
            entries, exclusions = part_entries or entries, exclusions + part_exclusions
    for key in grid:
        if any(key in entry for entry in entries):
            raise BadInput(f"{location.removesuffix(', ')}: {key} is in the grid and in the cells")
    return CellBlock(name, settings, entries, grid, exclusions)


def _grid(table: Mapping[str, Any], location: str) -> dict[str, list[Any]]:
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


def _entries(table: Mapping[str, Any], location: str) -> list[Settings]:
    """Returns the settings of each listed cell."""
    if table.get("cells") == []:
        raise BadInput(f"{location}cells = []: must have at least one cell")
    entries = [
        flatten(entry, f"{location}cell {number}: ")
        for number, entry in enumerate(_tables(table, "cells", location), 1)
    ]
    numbers: dict[str, int] = {}
    for number, entry in enumerate(entries, 1):
        text = repr(sorted((key, canonical(key, value)) for key, value in entry.items()))
        if text in numbers:
            raise BadInput(f"{location}cells {numbers[text]} and {number} are the same")
        numbers[text] = number
    return entries


def _exclusions(table: Mapping[str, Any], location: str) -> list[Exclusion]:
    exclusions = []
    for number, entry in enumerate(_tables(table, "exclude", location), 1):
        entry_location = f"{location}exclude {number}: "
        settings = flatten(entry, entry_location)
        if not settings:
            raise BadInput(f"{entry_location}names no key")
        for key, value in settings.items():
            if value == []:
                raise BadInput(f"{entry_location}{key} = []: must have at least one value")
        values = {key: _texts(key, value) for key, value in settings.items()}
        exclusions.append(Exclusion(entry_location, values))
    return exclusions


def _texts(key: str, value: Any) -> set[str]:
    """Returns the canonical texts of a value and, if it is a list, of each of its items."""
    return {canonical(key, each) for each in (value, *(value if isinstance(value, list) else ()))}


def _tables(table: Mapping[str, Any], key: str, location: str) -> list[dict[str, Any]]:
    """Returns the list of tables under a key, empty if the key is absent."""
    for each in table.get(key, []):
        if not isinstance(each, dict):
            raise BadInput(f"{location}{key}: {short_repr(each)} must be a table of keys")
    return table.get(key, [])


def _check_table(table: Mapping[str, Any], allowed: Mapping[str, type], location: str) -> Mapping[str, Any]:
    """Returns the table if its keys and the types of their values are allowed; else raises."""
    for key, value in table.items():
        if key not in allowed:
            belongs = key in ALL_KEYS or key in SECTIONS
            hint = f"; {key} of the configuration goes into set" if belongs else nearest(key, allowed)
            raise BadInput(f"{location}unknown key {key}{hint}")
        if not isinstance(value, allowed[key]):
            tables = f", [[{key}]]" if key in ("block", "exclude") and isinstance(value, dict) else ""
            type_name = TYPE_NAMES[allowed[key]]
            raise BadInput(f"{location}{key} = {short_repr(value)}: must be {type_name}{tables}")
    return table
