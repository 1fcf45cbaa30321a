"""The types of a file of published numbers: single ones, a paper's tables row by row, and claims."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from hpcfl.config.section import Section, Weight
from hpcfl.report.units import BY_ROUND, UNITS, Measure, Unit

Text = Annotated[str, Field(min_length=1, max_length=300)]
Finite = Annotated[float, Field(ge=-1e30, le=1e30)]
Decimals = Annotated[int, Field(ge=0, le=6)]
Round = Annotated[int, Field(ge=1)]
Match = dict[str, Any]
BLOCK = "block"


def _check_unit(measure: Measure, unit: Unit) -> None:
    allowed = UNITS.get(measure, ("%", "1"))
    if unit not in allowed:
        raise ValueError(f"unit = {unit!r}: {measure} has {' or '.join(allowed)}")


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
        _check_unit(self.measure, self.unit)
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


class Claim(Section):
    """What a paper says of two methods: the runs `higher` have more of a measure than the runs `lower`."""

    says: Text
    paper: Text
    place: Text
    """Where it stands in the paper."""
    higher: Match
    lower: Match
    measure: Measure = "best"
    unit: Unit = "%"
    stated: Finite | None = None
    """The difference of the paper's numbers; None: the paper has none."""

    @model_validator(mode="after")
    def _unit_fits(self) -> Claim:
        _check_unit(self.measure, self.unit)
        return self


class ReferenceFile(Section):
    """A file of published numbers."""

    paper: Text = "paper"
    runs: dict[str, Match] = Field(default_factory=dict)
    """Which runs a row or column of that name has, in any table, unless it says so itself."""
    number: list[PublishedNumber] = Field(default_factory=list)
    table: list[PaperTable] = Field(default_factory=list)
    claim: list[Claim] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_not_empty(self) -> ReferenceFile:
        if not (self.number or self.table or self.claim):
            raise ValueError("it has no [[number]], no [[table]] and no [[claim]]")
        return self
