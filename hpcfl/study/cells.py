"""The cells of a study: all combinations of its blocks' lists and grids, without the excluded ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from hpcfl.config.identity import SEED_KEYS
from hpcfl.config.loading import check_tables
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.methods.catalogue import check_method
from hpcfl.models.registry import client_architectures
from hpcfl.study.cell_names import cell_names
from hpcfl.study.keys import ALL_KEYS, RANKS, Settings, canonical, merge_settings, nest, short_repr

MAX_CELLS = 100_000


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    name: str
    """Stem of its log's file name, unique in the study; it depends on the block and `values` alone."""
    block: str
    values: Mapping[str, Any]
    """The settings that come from the block's list and grid: full key → value, in the order of the file."""
    settings: Mapping[str, Any]
    """All settings that replace defaults, without ranks."""
    ranks: int | None
    """Number of MPI ranks that it must run on; None: any."""
    config: Config | None
    """None if the settings are invalid; `problem` says why."""
    problem: str = ""


def seed_group(block: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Returns a key that is equal for cells to average: the block, and the values without seeds.

    Values are text, because 1 (one client) and 1.0 (all clients) are equal as numbers.
    """
    return block, json.dumps({key: value for key, value in values.items() if key not in SEED_KEYS})


@dataclass(frozen=True)
class Exclusion:
    """Excludes the cells in which each of its keys has one of the listed values."""

    location: str
    """Where it is in the file; error messages begin with it."""
    values: Mapping[str, set[str]]

    def matches(self, settings: Mapping[str, Any]) -> bool:
        """Returns whether a cell with these settings is excluded."""
        return all(
            key in settings and canonical(key, settings[key]) in texts for key, texts in self.values.items()
        )


@dataclass(frozen=True)
class CellBlock:
    """A block of the file: all combinations of its listed cells and the points of its grid."""

    name: str
    settings: Settings
    """Settings of all its cells; a cell's own settings replace them."""
    entries: Sequence[Settings]
    """The listed cells; one empty entry if there is only a grid."""
    grid: Mapping[str, Sequence[Any]]
    exclusions: Sequence[Exclusion]

    @property
    def size(self) -> int:
        return len(self.entries) * prod(map(len, self.grid.values()))

    def drafts(self, overrides: Settings) -> Iterator[Draft]:
        """Yields its cells, the last key of the grid varying fastest; `overrides` replace values."""
        grid = {key: [overrides[key]] if key in overrides else values for key, values in self.grid.items()}
        for entry in self.entries:
            entry = {key: overrides.get(key, value) for key, value in entry.items()}
            for values in product(*grid.values()):
                point = dict(zip(grid, values, strict=True))
                settings = merge_settings(merge_settings(self.settings, entry | point), overrides)
                yield Draft(self.name, entry, point, settings)


class Draft:
    """A cell that is not checked yet."""

    def __init__(self, block: str, entry: Settings, point: Settings, settings: Settings) -> None:
        self.block, self.entry, self.point, self.settings = block, entry, point, settings
        parts_of_tables = {key: value for key, value in (entry | point).items() if key not in ALL_KEYS}
        self.all_settings = settings | parts_of_tables

    def cell(self, name: str) -> Cell:
        """Returns the checked cell."""
        # an override of models.list removes models.group from the settings, and the other way round
        values = {key: self.all_settings[key] for key in self.entry | self.point if key in self.all_settings}
        settings = {key: value for key, value in self.settings.items() if key != RANKS}
        ranks = self.settings.get(RANKS)
        if ranks is not None and (type(ranks) is not int or ranks < 1):
            problem = f"ranks = {short_repr(ranks)}: must be a whole number of at least 1"
            return Cell(name, self.block, values, settings, None, None, problem)
        return Cell(name, self.block, values, settings, ranks, *_load_config(settings))


def make_cells(
    blocks: Sequence[CellBlock], exclusions: Sequence[Exclusion], overrides: Settings, strict: bool
) -> tuple[Cell, ...]:
    """Returns the cells of all blocks; if `strict`, an exclusion that excludes nothing is an error."""
    if (number := sum(block.size for block in blocks)) > MAX_CELLS:
        raise BadInput(f"{number} cells, before exclusions: more than {MAX_CELLS} are refused")
    drafts = {block.name: list(block.drafts(overrides)) for block in blocks}
    if strict:
        for exclusion in exclusions:
            _check_exclusion(exclusion, [draft for group in drafts.values() for draft in group])
        for block in blocks:
            for exclusion in block.exclusions:
                _check_exclusion(exclusion, drafts[block.name])
    kept: list[Draft] = []
    for block in blocks:
        both = [*exclusions, *block.exclusions]
        kept += [d for d in drafts[block.name] if not any(each.matches(d.all_settings) for each in both)]
    if not kept:
        raise BadInput("no cell is left: all are excluded")
    names = cell_names([(draft.block, draft.entry, draft.point) for draft in kept])
    result = tuple(draft.cell(name) for draft, name in zip(kept, names, strict=True))
    _refuse_duplicates(result)
    _refuse_unknown_options(result)
    if all(cell.problem for cell in result) and len({cell.problem for cell in result}) == 1:
        raise BadInput(f"{'every cell: ' if len(result) > 1 else ''}{result[0].problem}")
    return result


def _check_exclusion(exclusion: Exclusion, drafts: Sequence[Draft]) -> None:
    """Raises if an exclusion excludes nothing."""
    for key in exclusion.values:
        if not any(key in draft.all_settings for draft in drafts):
            raise BadInput(f"{exclusion.location}no cell sets {key}")
    if not any(exclusion.matches(draft.all_settings) for draft in drafts):
        raise BadInput(f"{exclusion.location}no cell has these values, so that nothing is left out")


def _load_config(settings: Settings) -> tuple[Config | None, str]:
    """Returns the configuration, or why it is invalid as far as can be checked without the data."""
    try:
        config = check_method(check_tables(nest(settings)))
        client_architectures(config.models)
    except BadInput as error:
        return None, str(error)
    return config, ""


def _refuse_unknown_options(cells: Sequence[Cell]) -> None:
    """Raises if no cell that sets a key of [method] knows it: that is no option of the user's own code."""
    for key in dict.fromkeys(key for cell in cells for key in cell.settings if key not in ALL_KEYS):
        problems = [f"{cell.problem} " for cell in cells if key in cell.settings]
        if all(problem.startswith(f"unknown key {key} ") for problem in problems):
            raise BadInput(problems[0].strip())


def _refuse_duplicates(cells: Sequence[Cell]) -> None:
    """Raises if two cells are the same run: the same configuration on the same number of ranks."""
    names: dict[bytes, str] = {}
    for cell in cells:
        run = cell.config.model_dump_json() if cell.config else repr(sorted(cell.settings.items()))
        digest = hashlib.blake2b(f"{cell.ranks} {cell.problem} {run}".encode(), digest_size=16).digest()
        if digest in names:
            raise BadInput(f"the cells {names[digest]} and {cell.name} are the same run")
        names[digest] = cell.name
