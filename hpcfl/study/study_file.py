"""Reads a study file: TOML with a base configuration, blocks of cells, exclusions and a small scale."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcfl.config.loading import check_tables, parse_setting, parse_toml, read_text
from hpcfl.errors import BadInput, nearest
from hpcfl.log.reader import SMALL_SCALE_NOTE, study_title
from hpcfl.share.lookup import find_study
from hpcfl.study.base_file import SHARED_TYPES, Shared, read_shared
from hpcfl.study.cells import Cell, CellBlock, Condition, make_cells
from hpcfl.study.file_tables import check_table, conditions, grid_of, tables_of
from hpcfl.study.keys import Settings, canonical, flatten, nest, short_repr
from hpcfl.utils.formatting import print_line

SCALES = ("full", "small")
CELL_TYPES = {"set": dict, "grid": dict, "cells": list, "exclude": list}
"""Keys of [[block]] and [block.small], with their types."""
FILE_TYPES = SHARED_TYPES | {"about": str, "block": list, "exclude": list}
"""Keys of the file, with their types."""
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
    notes: tuple[str, ...] = ()
    """What is left out of the grids, to be said once."""

    def print_notes(self) -> None:
        """Prints what is left out of the grids."""
        for note in self.notes:
            print_line(f"{self.title}: {note}")

    def print_start(self) -> None:
        """Prints the notes, and at small scale that the numbers mean nothing."""
        self.print_notes()
        if self.scale == "small":
            print_line(f"{self.title}: {SMALL_SCALE_NOTE}")

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
        table = check_table(tables, FILE_TYPES, "")
        cells, notes = _cells(table, path.parent, scale == "small", overrides)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return Study(path.stem, scale, table.get("about", ""), path, content, cells, notes)


def _cells(
    table: Mapping[str, Any], folder: Path, small: bool, overrides: Settings
) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Returns the cells of a study, and notes on what is left out."""
    blocks = tables_of(table, "block", "")
    if not blocks:
        raise BadInput("no cells: write at least one [[block]]")
    shared = read_shared(table, folder)
    if small and not shared.has_small and not any("small" in block for block in blocks):
        raise BadInput("no scale 'small': neither [small] nor [block.small] is there")
    cell_blocks = [_block(block, number, shared, small) for number, block in enumerate(blocks, 1)]
    names: set[str] = set()
    for block in cell_blocks:
        if block.name.lower() in names:
            raise BadInput(f"several blocks are called {block.name!r}")
        names.add(block.name.lower())
    strict = not small and not overrides
    cell_blocks, overrides = _shorten_grids(cell_blocks, overrides)
    return make_cells(cell_blocks, conditions(table, "exclude", ""), overrides, strict)


def _shorten_grids(blocks: Sequence[CellBlock], overrides: Settings) -> tuple[list[CellBlock], Settings]:
    """Returns blocks with the lists that overrides give for keys of their grids, and the other overrides.

    A list replaces the list of a grid unless the values of the key are lists themselves.
    """
    lists = {
        key: values
        for key, values in overrides.items()
        if isinstance(values, list)
        and any(key in block.grid for block in blocks)
        and not any(isinstance(value, list) for block in blocks for value in block.grid.get(key, ()))
    }
    checked = grid_of({"grid": lists}, "--set: ")
    shortened = [
        replace(block, grid={key: checked.get(key, values) for key, values in block.grid.items()})
        for block in blocks
    ]
    others = {key: value for key, value in overrides.items() if key not in lists}
    _refuse_lists_of_values(blocks, others)
    return shortened, others


def _refuse_lists_of_values(blocks: Sequence[CellBlock], overrides: Settings) -> None:
    """Raises BadInput for a list of values whose key is in no grid, so that there is nothing to shorten."""
    for key, values in overrides.items():
        if not isinstance(values, list) or not values or any(key in block.grid for block in blocks):
            continue
        if _is_allowed(key, values[0]) and not _is_allowed(key, values):
            raise BadInput(
                f"--set {key}={short_repr(values)}: a list shortens that of a grid, "
                f"and no grid here has {key}"
            )


def _is_allowed(key: str, value: Any) -> bool:
    try:
        check_tables(nest({key: value}))
    except BadInput:
        return False
    return True


def _block(table: Mapping[str, Any], number: int, shared: Shared, small: bool) -> CellBlock:
    location = f"block {number}: "
    check_table(table, CELL_TYPES | {"name": str, "small": dict}, location)
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
    small_table = check_table(table.get("small", {}), CELL_TYPES, f"{location}small: ")
    layers = [shared.small_settings] if small else []
    grid: dict[str, list[Any]] = {}
    entries: list[Settings] = [{}]
    exclusions: list[Condition] = []
    # the part for the small scale is checked at full scale too, so that mistakes in it are reported
    for part, part_location in ((table, location), (small_table, f"{location}small ")):
        part_settings = flatten(part.get("set", {}), f"{part_location}set: ")
        part_grid = grid_of(part, part_location)
        part_entries = _entries(part, part_location)
        part_exclusions = conditions(part, "exclude", part_location)
        if part is table or small:
            layers, grid = [*layers, part_settings], grid | part_grid
            if part is table:
                grid |= {key: values for key, values in shared.grid.items() if key not in grid}
                small_grid = shared.small_grid if small else {}
                grid |= {key: values for key, values in small_grid.items() if key in grid}
            entries, exclusions = part_entries or entries, exclusions + part_exclusions
    for key in grid:
        if any(key in entry for entry in entries):
            raise BadInput(f"{location.removesuffix(', ')}: {key} is in the grid and in the cells")
    replacements = shared.replacements if small else ()
    return CellBlock(name, shared.settings, shared.rules, layers, entries, grid, exclusions, replacements)


def _entries(table: Mapping[str, Any], location: str) -> list[Settings]:
    """Returns the settings of each listed cell."""
    if table.get("cells") == []:
        raise BadInput(f"{location}cells = []: must have at least one cell")
    entries = [
        flatten(entry, f"{location}cell {number}: ")
        for number, entry in enumerate(tables_of(table, "cells", location), 1)
    ]
    numbers: dict[str, int] = {}
    for number, entry in enumerate(entries, 1):
        text = repr(sorted((key, canonical(key, value)) for key, value in entry.items()))
        if text in numbers:
            raise BadInput(f"{location}cells {numbers[text]} and {number} are the same")
        numbers[text] = number
    return entries
