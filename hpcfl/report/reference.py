"""Published numbers beside ours: a typed TOML file with one entry per number, and the table of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from hpcfl.config.loading import error_message, parse_toml, read_text
from hpcfl.config.section import Section, Weight
from hpcfl.errors import BadInput
from hpcfl.report.series import Series, Setting
from hpcfl.report.tables import NONE, Cell, Table
from hpcfl.study.keys import Settings, canonical, flatten

Text = Annotated[str, Field(min_length=1, max_length=300)]
Measure = Literal[
    "accuracy", "accuracy_clients", "best", "clients_best", "selected", "head", "global", "local", "trained",
    "bytes_up", "bytes_down", "seconds",
]  # fmt: skip
SIZES = {"%": 0.01, "1": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "s": 1.0}
"""Units of published numbers, in those of a log."""
UNITS = {"bytes_up": ("B", "kB", "MB", "GB"), "bytes_down": ("B", "kB", "MB", "GB"), "seconds": ("s",)}
"""Units that a measure may have; others are accuracies."""
BLOCK = "block"


class PublishedNumber(Section):
    """A number of a paper, where it stands there, and which of our runs it is to be compared with."""

    paper: Text
    table: Text
    row: Text
    column: Text
    value: Annotated[float, Field(ge=-1e30, le=1e30)]
    deviation: Weight | None = None
    """As stated beside the value; None: the paper states none."""
    unit: Literal["%", "1", "B", "kB", "MB", "GB", "s"] = "%"
    measure: Measure = "accuracy"
    match: dict[str, Any]
    """Keys of the configuration that our runs must have, and `block` for a block of a study."""

    @model_validator(mode="after")
    def _unit_fits(self) -> PublishedNumber:
        allowed = UNITS.get(self.measure, ("%", "1"))
        if self.unit not in allowed:
            raise ValueError(f"unit = {self.unit!r}: {self.measure} has {' or '.join(allowed)}")
        if not self.match:
            raise ValueError("match is empty: name at least method.name")
        return self

    @property
    def place(self) -> str:
        return f"{self.table}, {self.row}, {self.column}"


class ReferenceFile(Section):
    """A file of published numbers."""

    number: Annotated[list[PublishedNumber], Field(min_length=1)]


def read_reference(path: Path) -> list[tuple[PublishedNumber, Settings]]:
    """Returns the numbers of a file, each with the full keys that our runs must have."""
    try:
        numbers = ReferenceFile.model_validate(parse_toml(read_text(path, "reference"), path)).number
    except ValidationError as error:
        raise BadInput(f"{path}: {error_message(error)}") from None
    return [(number, _match(number, f"{path}: number.{n}.match: ")) for n, number in enumerate(numbers)]


def _match(number: PublishedNumber, location: str) -> Settings:
    """Returns the full keys that our runs must have."""
    block = {BLOCK: number.match[BLOCK]} if BLOCK in number.match else {}
    return block | flatten({k: v for k, v in number.match.items() if k != BLOCK}, location)


def reference_table(
    numbers: Sequence[tuple[PublishedNumber, Settings]], settings: Sequence[Setting]
) -> Table:
    """Returns a row per published number: ours, the difference, and whether it is within the deviation."""
    all_series = [series for setting in settings for series in setting.series]
    rows = tuple(tuple(_row(number, match, all_series)) for number, match in numbers)
    columns = ("paper", "place", "what", "published", "ours", "difference", "within the deviation", "run")
    flags = tuple(name in ("published", "ours", "difference") for name in columns)
    note = (
        "Ours: mean ± standard deviation over finished seeds. Within: the difference of the means is at most "
        "the deviation that the paper states."
    )
    return Table("reference", "Published numbers and ours", columns, flags, rows, (note,))


def _row(number: PublishedNumber, match: Settings, all_series: Sequence[Series]) -> Iterator[Cell]:
    """Yields the cells of a published number."""
    found = [series for series in all_series if _fits(series, match)]
    ours = _values(found[0], number) if len(found) == 1 else np.empty(0)
    mean = float(ours.mean()) if len(ours) else math.nan
    std = float(ours.std(ddof=1)) if len(ours) > 1 else math.nan
    published = math.nan if number.deviation is None else number.deviation
    yield from (Cell(number.paper), Cell(number.place), Cell(f"{number.measure} in {number.unit}"))
    yield from (_number(number.value, published), _number(mean, std))
    difference = mean - number.value
    yield Cell(NONE if math.isnan(mean) else f"{difference:+.2f}".replace("-", "−"), difference)
    if math.isnan(mean):
        yield Cell(NONE)
    elif number.deviation is None:
        yield Cell("none stated")
    else:
        yield Cell("yes" if abs(difference) <= number.deviation + 1e-9 else "no")
    yield Cell(_which(found, mean))


def _which(found: Sequence[Series], mean: float) -> str:
    """Returns our runs by name, or why there are none to compare with."""
    if len(found) > 1:
        names = ", ".join(series.name for series in found[:2])
        return f"{len(found)} series match ({names}, …): match more keys"
    if not found:
        return "no run matches"
    return found[0].name + (" (not finished)" if math.isnan(mean) else "")


def _fits(series: Series, match: Settings) -> bool:
    """Returns whether all values that a number asks for are those of a series."""
    record = series.records[0]
    known = record.settings() | {BLOCK: record.block}
    return all(key in known and canonical(key, known[key]) == canonical(key, v) for key, v in match.items())


def _values(series: Series, number: PublishedNumber) -> np.ndarray:
    """Returns a measure of the finished runs of a series, in the unit of the number."""
    name = "global_" if number.measure == "global" else number.measure
    values = np.array([getattr(record.summary, name) for record in series.finished], dtype=np.float64)
    return values[~np.isnan(values)] / SIZES[number.unit]


def _number(mean: float, std: float) -> Cell:
    if math.isnan(mean):
        return Cell(NONE)
    return Cell(f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ± {std:.2f}", mean, std)
