"""Reads a file of published numbers, and says which of our runs each number is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcfl.config.loading import error_message, parse_setting, parse_toml, read_text
from hpcfl.errors import BadInput
from hpcfl.report.reference_types import (
    BLOCK,
    Claim,
    PaperTable,
    PublishedNumber,
    Quantity,
    ReferenceFile,
    Row,
)
from hpcfl.share.lookup import REFERENCES
from hpcfl.study.keys import Settings, canonical, flatten

SIDES = ("higher", "lower")
"""The runs that a claim compares."""


@dataclass(frozen=True)
class Published:
    """A published number and the full keys that our runs must have."""

    number: PublishedNumber
    match: Settings
    decimals: int = 2


@dataclass(frozen=True)
class PublishedTable:
    """A paper's table and its numbers by row and column; None: the paper has none there."""

    paper: str
    table: PaperTable
    rows: Sequence[Sequence[Published | None]]


@dataclass(frozen=True)
class Reference:
    """What a file of published numbers holds."""

    numbers: Sequence[Published]
    """The numbers that stand alone."""
    tables: Sequence[PublishedTable]
    claims: Sequence[Claim] = ()


def read_reference(path: Path) -> Reference:
    """Returns the numbers of a file."""
    try:
        file = ReferenceFile.model_validate(parse_toml(read_text(path, "reference"), path))
        numbers = [
            Published(number, full_keys(number.match, f"{path}: number.{n}.match: "))
            for n, number in enumerate(file.number)
        ]
        tables = [
            PublishedTable(file.paper, table, [list(_row(file, table, row, path)) for row in table.row])
            for table in file.table
        ]
        claims = [
            claim.model_copy(
                update={
                    side: full_keys(getattr(claim, side), f"{path}: claim.{n}.{side}: ") for side in SIDES
                }
            )
            for n, claim in enumerate(file.claim)
        ]
    except ValidationError as error:
        raise BadInput(f"{path}: {error_message(error)}") from None
    return Reference(numbers, tables, claims)


def _row(file: ReferenceFile, table: PaperTable, row: Row, path: Path) -> Iterator[Published | None]:
    """Yields the numbers of a row of a table."""
    for column, value in zip(table.column, row.values, strict=True):
        if not value:
            yield None
            continue
        match: Settings = {}
        for each in (table, column, row):
            found = each.match or file.runs.get(each.name, {})
            match |= full_keys(found, f"{path}: {table.name}, {each.name}: match: ")
        if column.key:
            match[column.key] = parse_setting(f"{column.key}={row.name}")[1]
        quantity: dict[str, Any] = {"unit": table.unit, "measure": table.measure, "decimals": table.decimals}
        for part in (column, row):
            quantity |= part.model_dump(include={*Quantity.model_fields}, exclude_none=True)
        decimals = quantity.pop("decimals")
        number = PublishedNumber(
            paper=file.paper, table=table.name, row=row.name, column=column.name, value=value[0],
            deviation=value[1] if len(value) > 1 else None, match=match, **quantity,
        )  # fmt: skip
        yield Published(number, match, decimals)


def full_keys(match: dict[str, Any], location: str) -> Settings:
    """Returns what runs must have, by full keys."""
    block = {BLOCK: match[BLOCK]} if BLOCK in match else {}
    return block | flatten({k: v for k, v in match.items() if k != BLOCK}, location)


def fits(known: Settings, match: Settings) -> bool:
    """Returns whether all values that a number asks for are those of a run."""
    return all(key in known and canonical(key, known[key]) == canonical(key, v) for key, v in match.items())


def reference_of_study(name: str) -> Reference:
    """Returns the shipped tables and claims; fedtgp-table10 and fedtgp-table10-short have Table 10."""
    paper, *words = name.split("-")
    path = REFERENCES / f"{paper}.toml"
    if not path.is_file():
        return Reference((), ())
    known = read_reference(path)
    tables = [each for each in known.tables if words and study_of(paper, each) == f"{paper}-{words[0]}"]
    return Reference((), tables, known.claims)


def study_of(paper: str, published: PublishedTable) -> str:
    """Returns the name of the study of a table's runs."""
    return published.table.study or f"{paper}-{slug(published.table.name)}"


def slug(table: str) -> str:
    """Returns the name of a table or figure as in the names of studies: table10, fig4."""
    return re.sub(r"[^a-z0-9]", "", table.lower())
