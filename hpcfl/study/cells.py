"""Cells: what blocks list and span, without what is excluded, each with its configuration."""

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
from hpcfl.methods.catalogue import method_spec
from hpcfl.models.registry import client_architectures
from hpcfl.study.cell_names import cell_names
from hpcfl.study.keys import KNOWN, RANKS, Settings, canonical, merge_settings, nest, short_repr

MOST = 100_000


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    name: str
    """The stem of its file's name, unique within the study; a function of its block and its own values."""
    block: str
    values: Mapping[str, Any]
    """Its own, by list and grid: full key → value, in the order of the file."""
    settings: Mapping[str, Any]
    """Every key that is set over the defaults, without ranks."""
    ranks: int | None
    """The number of MPI ranks that it asks for; None: any."""
    config: Config | None
    """None: it is refused, for the reason that `problem` gives."""
    problem: str = ""


def seed_group(block: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Returns what cells have in common that are averaged: the block, and the values but for seeds.

    Values are text, because 1 client and 1.0 of all clients are equal as numbers.
    """
    return block, json.dumps({key: value for key, value in values.items() if key not in SEED_KEYS})


@dataclass(frozen=True)
class Exclusion:
    """Leaves out the cells in which each of its keys has one of its values."""

    place: str
    wanted: Mapping[str, set[str]]

    def hits(self, settings: Mapping[str, Any]) -> bool:
        """Says whether a cell is left out."""
        return all(
            key in settings and canonical(key, settings[key]) in among for key, among in self.wanted.items()
        )


@dataclass(frozen=True)
class CellBlock:
    """Every cell of a list at every point of a grid."""

    name: str
    settings: Settings
    """What all its cells have, beneath their own."""
    entries: Sequence[Settings]
    """The list of cells; one that sets nothing where there is only a grid."""
    grid: Mapping[str, Sequence[Any]]
    exclusions: Sequence[Exclusion]

    @property
    def size(self) -> int:
        return len(self.entries) * prod(map(len, self.grid.values()))

    def drafts(self, asked: Settings) -> Iterator[Draft]:
        """Yields its cells, the last key of the grid varying fastest; what is asked for replaces values."""
        grid = {key: [asked[key]] if key in asked else values for key, values in self.grid.items()}
        for entry in self.entries:
            entry = {key: asked.get(key, value) for key, value in entry.items()}
            for values in product(*grid.values()):
                point = dict(zip(grid, values, strict=True))
                settings = merge_settings(merge_settings(self.settings, entry | point), asked)
                yield Draft(self.name, entry, point, settings)


class Draft:
    """A cell that is not checked yet."""

    def __init__(self, block: str, entry: Settings, point: Settings, settings: Settings) -> None:
        self.block, self.entry, self.point, self.settings = block, entry, point, settings
        parts_of_tables = {key: value for key, value in (entry | point).items() if key not in KNOWN}
        self.every = settings | parts_of_tables

    def cell(self, name: str) -> Cell:
        """Returns the cell."""
        # a list of networks that is asked for takes the place of a group, and the other way round
        values = {key: self.every[key] for key in self.entry | self.point if key in self.every}
        settings = {key: value for key, value in self.settings.items() if key != RANKS}
        ranks = self.settings.get(RANKS)
        if ranks is not None and (type(ranks) is not int or ranks < 1):
            problem = f"ranks = {short_repr(ranks)}: must be a whole number of at least 1"
            return Cell(name, self.block, values, settings, None, None, problem)
        return Cell(name, self.block, values, settings, ranks, *_checked(settings))


def cells(
    blocks: Sequence[CellBlock], everywhere: Sequence[Exclusion], asked: Settings, strict: bool
) -> tuple[Cell, ...]:
    """Returns the cells of all blocks; `strict`: every exclusion must leave something out."""
    if (number := sum(block.size for block in blocks)) > MOST:
        raise BadInput(f"{number} cells, before exclusions: more than {MOST} are refused")
    drafts = {block.name: list(block.drafts(asked)) for block in blocks}
    if strict:
        for exclusion in everywhere:
            _must_hit(exclusion, [draft for several in drafts.values() for draft in several])
        for block in blocks:
            for exclusion in block.exclusions:
                _must_hit(exclusion, drafts[block.name])
    kept: list[Draft] = []
    for block in blocks:
        without = [*everywhere, *block.exclusions]
        kept += [d for d in drafts[block.name] if not any(each.hits(d.every) for each in without)]
    if not kept:
        raise BadInput("no cell is left: all are excluded")
    called = cell_names([(draft.block, draft.entry, draft.point) for draft in kept])
    made = tuple(draft.cell(name) for draft, name in zip(kept, called, strict=True))
    _refuse_twins(made)
    if all(cell.problem for cell in made) and len({cell.problem for cell in made}) == 1:
        raise BadInput(f"{'every cell: ' if len(made) > 1 else ''}{made[0].problem}")
    return made


def _must_hit(exclusion: Exclusion, drafts: Sequence[Draft]) -> None:
    for key in exclusion.wanted:
        if not any(key in draft.every for draft in drafts):
            raise BadInput(f"{exclusion.place}no cell sets {key}")
    if not any(exclusion.hits(draft.every) for draft in drafts):
        raise BadInput(f"{exclusion.place}no cell has these values, so that nothing is left out")


def _checked(settings: Settings) -> tuple[Config | None, str]:
    """Returns the configuration, or why there is none: all that can be said without the data."""
    try:
        config = check_tables(nest(settings))
        method_spec(config.method, config.data.name)
        client_architectures(config.models)
    except BadInput as error:
        return None, str(error)
    return config, ""


def _refuse_twins(made: Sequence[Cell]) -> None:
    """Raises if two cells are the same run: the same configuration on the same number of ranks."""
    seen: dict[bytes, str] = {}
    for cell in made:
        run = cell.config.model_dump_json() if cell.config else repr(sorted(cell.settings.items()))
        digest = hashlib.blake2b(f"{cell.ranks} {cell.problem} {run}".encode(), digest_size=16).digest()
        if digest in seen:
            raise BadInput(f"the cells {seen[digest]} and {cell.name} are the same run")
        seen[digest] = cell.name
