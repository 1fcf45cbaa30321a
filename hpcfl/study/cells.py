"""The cells of a study: all combinations of its blocks' lists and grids, without the excluded ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

from hpcfl.config.identity import SEED_KEYS
from hpcfl.errors import BadInput
from hpcfl.study.cell_names import cell_names
from hpcfl.study.drafts import Cell, Draft, leave_out_missing_options
from hpcfl.study.keys import ALL_KEYS, Settings, canonical, merge_settings

MAX_CELLS = 100_000


def seed_group(block: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Returns a key that is equal for cells to average: the block, and the values without seeds.

    Values are text, because 1 (one client) and 1.0 (all clients) are equal as numbers.
    """
    return block, json.dumps({key: value for key, value in values.items() if key not in SEED_KEYS})


@dataclass(frozen=True)
class Condition:
    """Holds for the cells in which each of its keys has one of the listed values."""

    location: str
    """Where it is in the file; error messages begin with it."""
    values: Mapping[str, set[str]]

    def matches(self, settings: Mapping[str, Any]) -> bool:
        """Returns whether it holds for a cell with these settings."""
        return all(
            key in settings and canonical(key, settings[key]) in texts for key, texts in self.values.items()
        )


@dataclass(frozen=True)
class Rule:
    """Settings for the cells of a condition."""

    condition: Condition
    settings: Settings


@dataclass(frozen=True)
class CellBlock:
    """A block of the file: all combinations of its listed cells and the points of its grid."""

    name: str
    base: Settings
    """Settings of the file, below those of its rules."""
    rules: Sequence[Rule]
    layers: Sequence[Settings]
    """Settings of all its cells, later ones win; a cell's own settings replace them."""
    entries: Sequence[Settings]
    """The listed cells; one empty entry if there is only a grid."""
    grid: Mapping[str, Sequence[Any]]
    exclusions: Sequence[Condition]
    replacements: Sequence[Rule] = ()
    """What the cells run with instead of their values, at small scale."""

    @property
    def size(self) -> int:
        return len(self.entries) * prod(map(len, self.grid.values()))

    def drafts(self, overrides: Settings) -> Iterator[Draft]:
        """Yields its cells, the last key of the grid varying fastest; `overrides` replace values."""
        grid = {key: [overrides[key]] if key in overrides else values for key, values in self.grid.items()}
        common = merged(self.base, *self.layers)
        for entry in self.entries:
            entry = {key: overrides.get(key, value) for key, value in entry.items()}
            for values in product(*grid.values()):
                point = dict(zip(grid, values, strict=True))
                named = merged(common, entry | point, overrides)
                if rules := _settings_of(self.rules, named):
                    named = merged(self.base, *rules, *self.layers, entry | point, overrides)
                instead = _settings_of(self.replacements, named)
                used = merged(named, *instead, overrides) if instead else named
                yield Draft(self.name, entry, point, named, used)


def _settings_of(rules: Sequence[Rule], known: Settings) -> list[Settings]:
    """Returns the settings of the rules whose conditions hold."""
    return [rule.settings for rule in rules if rule.condition.matches(known)]


def merged(*layers: Mapping[str, Any]) -> Settings:
    """Returns settings, each layer overriding those before it."""
    return reduce(merge_settings, layers, {})


def make_cells(
    blocks: Sequence[CellBlock], exclusions: Sequence[Condition], overrides: Settings, strict: bool
) -> tuple[tuple[Cell, ...], tuple[str, ...]]:
    """Returns the cells of all blocks, and notes; if `strict`, an exclusion must exclude something.

    A note says which options of a grid are left out for methods that do not have them.
    """
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
    kept, notes = leave_out_missing_options(kept)
    names = cell_names([(draft.block, draft.entry, draft.point) for draft in kept])
    result = tuple(draft.cell(name) for draft, name in zip(kept, names, strict=True))
    _refuse_duplicates(result)
    _refuse_unknown_options(result)
    if all(cell.problem for cell in result) and len({cell.problem for cell in result}) == 1:
        raise BadInput(f"{'every cell: ' if len(result) > 1 else ''}{result[0].problem}")
    return result, notes


def _check_exclusion(exclusion: Condition, drafts: Sequence[Draft]) -> None:
    """Raises if an exclusion excludes nothing."""
    for key in exclusion.values:
        if not any(key in draft.all_settings for draft in drafts):
            raise BadInput(f"{exclusion.location}no cell sets {key}")
    if not any(exclusion.matches(draft.all_settings) for draft in drafts):
        raise BadInput(f"{exclusion.location}no cell has these values, so that nothing is left out")


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
