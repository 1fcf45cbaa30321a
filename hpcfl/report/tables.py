"""The tables of a report: results by series, and accuracies by method and setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hpcfl.log.summary import COLUMNS, INFERENCES
from hpcfl.report.series import Series, Setting
from hpcfl.report.verdict import WORDS, Verdict
from hpcfl.report.verdict_text import HEADINGS, verdict_row
from hpcfl.study.results import mean_and_std
from hpcfl.utils.formatting import format_bytes

NONE = "–"
"""The text of a value that is not known, or of a run that diverged."""
MAX_COLUMNS = 12
"""Up to so many settings there is a table of methods × settings."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: text, and for numbers mean and standard deviation over seeds."""

    text: str
    mean: float = math.nan
    std: float = math.nan
    place: int = 0
    """1: the best of its comparison, 2: the second best."""


@dataclass(frozen=True)
class Table:
    """A table of a report; `numbers` says which columns hold numbers."""

    name: str
    """Stem of its files."""
    title: str
    columns: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = field(default=())


def make_tables(settings: Sequence[Setting], verdict: Verdict) -> list[Table]:
    """Returns the tables of a report."""
    tables = [results_table(settings)]
    if 1 < len(settings) <= MAX_COLUMNS:
        tables.append(accuracy_table(settings))
    if verdict.deltas:
        tables.append(verdict_table(verdict))
    return tables


def results_table(settings: Sequence[Setting]) -> Table:
    """Returns a row per series: accuracies by inference, bytes and seconds of a round."""
    all_series = [series for setting in settings for series in setting.series]
    known = [
        name
        for name in INFERENCES
        if any(not math.isnan(_statistics(series)[name][0]) for series in all_series)
    ]
    shares = ["accuracy", *known, "best"]
    rows: list[tuple[Cell, ...]] = []
    for setting in settings:
        statistics = [_statistics(series) for series in setting.series]
        columns = [_placed([_percent(*each[name]) for each in statistics]) for name in shares]
        columns += [
            [_cell(format_bytes, *each[name]) for each in statistics] for name in ("bytes_up", "bytes_down")
        ]
        columns += [[_cell("{:.3f}".format, *each["seconds"]) for each in statistics]]
        for series, *cells in zip(setting.series, *columns, strict=True):
            words = [Cell(series.label), Cell(WORDS[series.records[0].infer]), Cell(_seeds(series))]
            rows.append(
                tuple([Cell(setting.name), *words, *cells] if len(settings) > 1 else [*words, *cells])
            )
    names = [
        "method",
        "counts by",
        "seeds",
        "accuracy",
        *(f"by {WORDS[name]}" for name in known),
        "best round",
    ]
    names += ["up per round", "down per round", "seconds per round"]
    headings = (["setting"] if len(settings) > 1 else []) + names
    texts = len(headings) - len(names) + 3
    numbers = tuple(i >= texts for i in range(len(headings)))
    notes = (
        "Accuracy in %, over all test samples, after the last round; mean ± standard deviation over seeds. "
        "Bold: best, underlined: second. –: diverged, or not known.",
    )
    return Table("results", "Results", tuple(headings), numbers, tuple(rows), notes)


def accuracy_table(settings: Sequence[Setting]) -> Table:
    """Returns a row per method and a column per setting, with the accuracy that counts for the method."""
    labels = list(dict.fromkeys(series.label for setting in settings for series in setting.series))
    columns = []
    for setting in settings:
        by_label = {series.label: _statistics(series)["accuracy"] for series in setting.series}
        columns.append(_placed([_percent(*by_label.get(label, (math.nan, math.nan))) for label in labels]))
    rows = tuple((Cell(label), *cells) for label, *cells in zip(labels, *columns, strict=True))
    headings = ("method", *(setting.name for setting in settings))
    notes = ("Accuracy in %, each method by the inference that counts for it; mean ± std over seeds.",)
    return Table("accuracy", "Accuracy", headings, (False, *[True] * len(settings)), rows, notes)


def verdict_table(verdict: Verdict) -> Table:
    """Returns a row per method and inference with its difference to `local`."""
    numbers = (False, False, True, True, True, True, True, False)
    rows = []
    for delta in verdict.deltas:
        std = float(np.std(delta.by_seed, ddof=1)) if len(delta.by_seed) > 1 else math.nan
        means = (delta.accuracy, delta.local, delta.mean, delta.better, delta.worse)
        values = [math.nan, math.nan, *means, math.nan]
        cells = [Cell(text, mean) for text, mean in zip(verdict_row(delta), values, strict=True)]
        cells[4] = replace(cells[4], std=std)
        rows.append(tuple(cells))
    note = (
        "Difference in percentage points; in brackets the 95% interval of the mean by Student's t over seeds."
    )
    return Table("verdict", "Did federation help?", HEADINGS, numbers, tuple(rows), (note,))


def _statistics(series: Series) -> dict[str, tuple[float, float]]:
    """Returns mean and standard deviation over the finished runs of a series, by column of a summary."""
    if not series.finished:
        return dict.fromkeys(COLUMNS, (math.nan, math.nan))
    rows = [
        [getattr(r.summary, f"{name}_" if name == "global" else name) for name in COLUMNS]
        for r in series.finished
    ]
    mean, std = mean_and_std(np.array(rows, dtype=np.float64))
    return {name: (float(m), float(s)) for name, m, s in zip(COLUMNS, mean, std, strict=True)}


def _seeds(series: Series) -> str:
    """Returns the number of finished runs, and how many others there are: `2, 1 diverged`."""
    diverged = sum(record.has_diverged for record in series.records)
    others = len(series.records) - len(series.finished) - diverged
    words = [f"{n} {word}" for n, word in ((diverged, "diverged"), (others, "unfinished")) if n]
    return ", ".join([str(len(series.finished)), *words])


def _percent(mean: float, std: float) -> Cell:
    return _cell(lambda share: f"{100 * share:.2f}", mean, std)


def _cell(form: Callable[[float], str], mean: float, std: float) -> Cell:
    """Returns the cell of a number; a deviation is shown where it is written like the mean."""
    if math.isnan(mean):
        return Cell(NONE)
    shows_std = not math.isnan(std) and form is not format_bytes
    return Cell(f"{form(mean)} ± {form(std)}" if shows_std else form(mean), mean, std)


def _placed(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells with the best and the second best marked; equal ones share their place."""
    found = list(cells)
    values = sorted(
        {cell.text.partition(" ")[0] for cell in found if cell.text != NONE}, key=float, reverse=True
    )
    if len(found) < 2:
        return found
    places = {text: place for place, text in enumerate(values[:2], start=1)}
    return [replace(cell, place=places.get(cell.text.partition(" ")[0], 0)) for cell in found]
