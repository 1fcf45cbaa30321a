"""What a figure is made from, and what a function that draws one returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hpcfl.report.figures.style import series_styles
from hpcfl.report.records import RunRecord
from hpcfl.report.series import Series, Setting
from hpcfl.report.table_formats import one_line
from hpcfl.report.verdict import Verdict
from hpcfl.utils.formatting import plural

MAX_PANELS = 6
"""Settings that are shown as panels of one figure; the others are named as left out."""


class NoData(Exception):
    """The runs do not have what a figure needs; the text says what."""


@dataclass(frozen=True)
class Drawing:
    """A figure, one sentence that says what to see, and its data as rows of a table."""

    figure: Figure
    sentence: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class FigureData:
    """The runs of a report as figures need them."""

    settings: Sequence[Setting]
    verdict: Verdict
    target: float | None = None
    """Accuracy that runs are to reach; None: 90% of the best."""

    @cached_property
    def styles(self) -> dict[str, dict[str, Any]]:
        """Colour, line style and marker of every label, the same in all figures."""
        return series_styles(
            list(dict.fromkeys(s.label for setting in self.settings for s in setting.series))
        )

    @property
    def panels(self) -> Sequence[Setting]:
        """The settings that are shown side by side."""
        return self.settings[:MAX_PANELS]

    @cached_property
    def main(self) -> Setting:
        """The setting with the most series, for figures that show one."""
        return max(self.settings, key=lambda setting: len(setting.series))

    def where(self, setting: Setting | None = None) -> str:
        """Returns which setting a figure of one shows, the main one by default, as the end of a sentence."""
        name = (setting or self.main).name
        return f" Setting: {one_line(name)}." if name else ""

    def first(self, number: int, most: int = MAX_PANELS) -> str:
        """Returns that a figure of at most so many series may not show all, and which setting it shows."""
        may_lack = number == most and len(self.main.series) > most
        return (f" The first {number} methods that have it." if may_lack else "") + self.where()

    def left_out(self) -> str:
        """Returns how many settings have no panel, as the end of a sentence."""
        left = len(self.settings) - len(self.panels)
        return (
            f" {plural(left, 'more setting')} {'is' if left == 1 else 'are'} in the tables only."
            if left
            else ""
        )


def shown(series: Series) -> tuple[RunRecord, ...]:
    """Returns the runs of a series that figures show: the finished ones, or all if none is."""
    return series.finished or series.records


def curve(records: Sequence[RunRecord], path: str) -> np.ndarray:
    """Returns a dataset by round, [run × round], over the rounds that all runs have; NaN: a run lacks it."""
    rounds = min(record.run.rounds_done for record in records)
    rows = []
    for record in records:
        known = path in record.run.datasets
        rows.append(np.asarray(record.run[path][:rounds], dtype=float) if known else np.full(rounds, np.nan))
    return np.array(rows).reshape(len(rows), rounds)


def mean_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and sample standard deviation over runs; 0 where there is one run."""
    spread = values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
    return values.mean(0), spread
