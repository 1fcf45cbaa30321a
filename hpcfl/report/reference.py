"""Published numbers beside ours: a row per number, or a paper's table as it is printed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from hpcfl.report.measures import measured
from hpcfl.report.reference_file import Published, PublishedTable, fits, slug
from hpcfl.report.reference_types import BLOCK, PublishedNumber
from hpcfl.report.series import Series, Setting
from hpcfl.report.tables import NONE, Cell, Table
from hpcfl.report.units import SIZES
from hpcfl.study.keys import Settings

LINES = ("published", "ours", "difference")
"""What stands below each other in each row of a published table."""


def reference_table(numbers: Sequence[Published], settings: Sequence[Setting]) -> Table:
    """Returns a row per published number: ours, the difference, and whether it is within the deviation."""
    all_series = [series for setting in settings for series in setting.series]
    rows = tuple(tuple(_row(each.number, each.match, all_series)) for each in numbers)
    columns = ("paper", "place", "what", "published", "ours", "difference", "within the deviation", "run")
    flags = tuple(name in ("published", "ours", "difference") for name in columns)
    note = (
        "Ours: mean ± standard deviation over finished seeds. Within: the difference of the means is at most "
        "the deviation that the paper states."
    )
    return Table("reference", "Published numbers and ours", columns, flags, rows, (note,))


def _row(number: PublishedNumber, match: Settings, all_series: Sequence[Series]) -> Iterator[Cell]:
    """Yields the cells of a published number."""
    found = find_series(all_series, match)
    mean, std = _ours(found, number)
    published = math.nan if number.deviation is None else number.deviation
    yield from (Cell(number.paper), Cell(number.place), Cell(f"{number.measure} in {number.unit}"))
    yield from (_number(number.value, published), _number(mean, std))
    difference = mean - number.value
    yield difference_cell(mean, number.value)
    if math.isnan(mean):
        yield Cell(NONE)
    elif number.deviation is None:
        yield Cell("none stated")
    else:
        yield Cell("yes" if abs(difference) <= number.deviation + 1e-9 else "no")
    yield Cell(_which(found, mean))


def paper_table(published: PublishedTable, settings: Sequence[Setting], small: bool) -> Table | None:
    """Returns a paper's table with ours below each of its numbers; None: none of the runs is in it."""
    table, all_series = published.table, [series for setting in settings for series in setting.series]
    rows: list[tuple[Cell, ...]] = []
    found_any, rounds = False, set[int]()
    for entry, numbers in zip(table.row, published.rows, strict=True):
        lines: list[list[Cell]] = [[Cell(entry.name), Cell(word)] for word in LINES]
        for each in numbers:
            found = find_series(all_series, each.match) if each else []
            found_any |= bool(found)
            rounds |= {record.run.rounds_done for series in found for record in series.finished}
            for line, cell in zip(lines, _column(each, found), strict=True):
                line.append(cell)
        rows += [tuple(line) for line in lines]
    if not found_any:
        return None
    notes = (
        f"{published.paper}, {table.name}: {table.caption} "
        f"Ours: {_measures(published)}, mean ± standard deviation over finished seeds{_lengths(rounds)}.",
        *(["Ours are runs at small scale, on made-up images: their numbers mean nothing."] if small else []),
    )
    headings = ("", "", *(column.name for column in table.column))
    numbers_in = (False, False, *[True] * len(table.column))
    title = f"{table.name}: published, and ours"
    return Table(f"paper-{slug(table.name)}", title, headings, numbers_in, tuple(rows), notes)


def _lengths(rounds: Iterable[int]) -> str:
    """Returns how many rounds our runs have: the paper's may be longer."""
    numbers = [str(number) for number in sorted(rounds)]
    return f", runs of {' or '.join(numbers)} rounds" if numbers else ""


def _measures(published: PublishedTable) -> str:
    """Returns what a table's numbers are: best in %, silhouette in 1."""
    numbers = [each.number for row in published.rows for each in row if each]
    return ", ".join(dict.fromkeys(f"{number.measure} in {number.unit}" for number in numbers))


def _column(published: Published | None, found: Sequence[Series]) -> tuple[Cell, Cell, Cell]:
    """Returns the paper's number, ours and the difference."""
    if published is None:
        return Cell(NONE), Cell(NONE), Cell(NONE)
    number, decimals = published.number, published.decimals
    mean, std = _ours(found, number)
    deviation = math.nan if number.deviation is None else number.deviation
    theirs = _number(number.value, deviation, decimals)
    return theirs, _number(mean, std, decimals), difference_cell(mean, number.value, decimals)


def _ours(found: Sequence[Series], number: PublishedNumber) -> tuple[float, float]:
    """Returns mean and deviation of a measure, if exactly one series is meant."""
    ours = _values(found[0], number) if len(found) == 1 else np.empty(0)
    mean = float(ours.mean()) if len(ours) else math.nan
    return mean, float(ours.std(ddof=1)) if len(ours) > 1 else math.nan


def difference_cell(mean: float, published: float, decimals: int = 2) -> Cell:
    difference = mean - published
    text = NONE if math.isnan(mean) else f"{difference:+.{decimals}f}".replace("-", "−")
    return Cell(text, difference)


def _which(found: Sequence[Series], mean: float) -> str:
    """Returns our runs by name, or why there are none to compare with."""
    if len(found) > 1:
        names = ", ".join(series.name for series in found[:2])
        return f"{len(found)} series match ({names}, …): match more keys"
    if not found:
        return "no run matches"
    return found[0].name + (" (not finished)" if math.isnan(mean) else "")


def find_series(all_series: Sequence[Series], match: Settings) -> list[Series]:
    """Returns the series that have all values that a number asks for."""
    found = []
    for series in all_series:
        record = series.records[0]
        if fits({**record.settings(), **record.values, BLOCK: record.block}, match):
            found.append(series)
    return found


def _values(series: Series, number: PublishedNumber) -> np.ndarray:
    """Returns a measure of the finished runs of a series, in the unit of the number."""
    values = np.array([measured(record, number) for record in series.finished], dtype=np.float64)
    return values[~np.isnan(values)] / SIZES[number.unit]


def _number(mean: float, std: float, decimals: int = 2) -> Cell:
    if math.isnan(mean):
        return Cell(NONE)
    text = f"{mean:.{decimals}f}".replace("-", "−")
    return Cell(text if math.isnan(std) else f"{text} ± {std:.{decimals}f}", mean, std)
