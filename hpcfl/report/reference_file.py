"""A typed TOML file of published numbers: single ones, or a paper's tables row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from hpcfl.config.loading import error_message, parse_setting, parse_toml, read_text
from hpcfl.config.section import Section, Weight
from hpcfl.errors import BadInput
from hpcfl.log.summary import INFERENCES
from hpcfl.share.lookup import REFERENCES
from hpcfl.study.keys import Settings, canonical, flatten

Text = Annotated[str, Field(min_length=1, max_length=300)]
Finite = Annotated[float, Field(ge=-1e30, le=1e30)]
Decimals = Annotated[int, Field(ge=0, le=6)]
Round = Annotated[int, Field(ge=1)]
Match = dict[str, Any]
Measure = Literal[
    "accuracy", "accuracy_clients", "best", "clients_best", "selected", "head", "global", "local", "trained",
    "silhouette", "personalisation", "bytes_up", "bytes_down", "bytes", "bytes_client", "flops", "seconds",
]  # fmt: skip
Unit = Literal["%", "1", "B", "kB", "MB", "GB", "k floats", "M floats", "G", "s"]
SIZES = {
    "%": 0.01, "1": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "k floats": 4e3, "M floats": 4e6,
    "G": 1e9, "s": 1.0,
}  # fmt: skip
"""Units of published numbers, in those of a log."""
BYTES = ("B", "kB", "MB", "GB", "k floats", "M floats")
UNITS = dict.fromkeys(("bytes_up", "bytes_down", "bytes", "bytes_client"), BYTES) | {
    "silhouette": ("1",), "personalisation": ("1",), "seconds": ("s",), "flops": ("G",),
}  # fmt: skip
"""Units that a measure may have; others are accuracies."""
BY_ROUND = {
    "accuracy": "/round/accuracy", "accuracy_clients": "/round/accuracy_mean",
    "bytes_up": "/round/bytes_up", "bytes_down": "/round/bytes_down",
    **{name: f"/client/accuracy_{name}" for name in INFERENCES},
    "silhouette": "/round/silhouette_pooled", "personalisation": "/round/personalisation",
}  # fmt: skip
"""Measures that can be those after a given round, and their datasets."""
BLOCK = "block"


class PublishedNumber(Section):
    """A number of a paper, where it stands there, and which of our runs it is to be compared with."""

    paper: Text
    table: Text
    row: Text
    column: Text
    value: Finite
    deviation: Weight | None = None
    """As stated beside the value; None: the paper states none."""
    unit: Unit = "%"
    measure: Measure = "accuracy"
    round: Round | None = None
    """The round after which it is measured, from 1; None: the last one, or that of the measure."""
    match: Match
    """Keys of the configuration that our runs must have, and `block` for a block of a study."""

    @model_validator(mode="after")
    def _unit_fits(self) -> PublishedNumber:
        allowed = UNITS.get(self.measure, ("%", "1"))
        if self.unit not in allowed:
            raise ValueError(f"unit = {self.unit!r}: {self.measure} has {' or '.join(allowed)}")
        if self.round is not None and self.measure not in (*BY_ROUND, "bytes"):
            raise ValueError(f"round = {self.round}: {self.measure} is not measured after a round")
        if not self.match:
            raise ValueError("match is empty: name at least method.name")
        return self

    @property
    def place(self) -> str:
        return f"{self.table}, {self.row}, {self.column}"


class Quantity(Section):
    """What a row or column has otherwise than its table; a row wins over a column."""

    measure: Measure | None = None
    unit: Unit | None = None
    decimals: Decimals | None = None
    round: Round | None = None


class Column(Quantity):
    """A column of a paper's table, and which runs are in it."""

    name: Text
    key: str = ""
    """A key whose value is the name of the row."""
    match: Match = Field(default_factory=dict)


class Row(Quantity):
    """A row of a paper's table, which runs are in it, and its numbers in the order of the columns."""

    name: Text
    match: Match = Field(default_factory=dict)
    values: list[list[Finite]]
    """[value], or [value, deviation]; []: the paper has none."""


class PaperTable(Section):
    """A table of a paper as it is printed, and which runs it is about."""

    name: Text
    """As the paper calls it: Table 1."""
    caption: Text
    study: str = ""
    """The study that has its runs; empty: the one of its own name."""
    unit: Unit = "%"
    measure: Measure = "best"
    decimals: Decimals = 2
    match: Match = Field(default_factory=dict)
    """What all its runs have."""
    column: Annotated[list[Column], Field(min_length=1)]
    row: Annotated[list[Row], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_rectangular(self) -> PaperTable:
        for row in self.row:
            if len(row.values) != len(self.column):
                raise ValueError(f"row {row.name}: {len(row.values)} values, {len(self.column)} columns")
            if any(len(value) > 2 or (len(value) == 2 and value[1] < 0) for value in row.values):
                raise ValueError(f"row {row.name}: a value is [number] or [number, deviation]")
        for names in ([each.name for each in self.column], [each.name for each in self.row]):
            if len({*names}) < len(names):
                raise ValueError(f"{self.name}: two rows or two columns have the same name")
        return self


class ReferenceFile(Section):
    """A file of published numbers."""

    paper: Text = "paper"
    runs: dict[str, Match] = Field(default_factory=dict)
    """Which runs a row or column of that name has, in any table, unless it says so itself."""
    number: list[PublishedNumber] = Field(default_factory=list)
    table: list[PaperTable] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_not_empty(self) -> ReferenceFile:
        if not self.number and not self.table:
            raise ValueError("it has no [[number]] and no [[table]]")
        return self


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
    except ValidationError as error:
        raise BadInput(f"{path}: {error_message(error)}") from None
    return Reference(numbers, tables)


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


def tables_of_study(name: str) -> list[PublishedTable]:
    """Returns the shipped tables of a study: fedtgp-table10 and fedtgp-table10-short have Table 10."""
    paper, *words = name.split("-")
    path = REFERENCES / f"{paper}.toml"
    if not words or not path.is_file():
        return []
    return [each for each in read_reference(path).tables if study_of(paper, each) == f"{paper}-{words[0]}"]


def study_of(paper: str, published: PublishedTable) -> str:
    """Returns the name of the study of a table's runs."""
    return published.table.study or f"{paper}-{slug(published.table.name)}"


def slug(table: str) -> str:
    """Returns the name of a table or figure as in the names of studies: table10, fig4."""
    return re.sub(r"[^a-z0-9]", "", table.lower())
