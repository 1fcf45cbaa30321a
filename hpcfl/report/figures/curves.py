"""Accuracy by round, by bytes and by seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, curve, mean_and_spread, shown
from hpcfl.report.figures.style import (
    add_legend,
    draw_mean,
    label_text,
    logarithmic_x,
    new_figure,
    title_text,
    whole_numbers,
)
from hpcfl.report.records import RunRecord


def rounds_so_far(records: Sequence[RunRecord]) -> np.ndarray:
    """Returns the number of rounds after each round, [run × round]."""
    accuracy = curve(records, "/round/accuracy")
    return np.broadcast_to(np.arange(1, accuracy.shape[1] + 1, dtype=float), accuracy.shape)


def bytes_so_far(records: Sequence[RunRecord]) -> np.ndarray:
    """Returns the bytes up and down after each round, as papers count."""
    return (curve(records, "/round/bytes_up") + curve(records, "/round/bytes_down")).cumsum(1)


def seconds_so_far(records: Sequence[RunRecord]) -> np.ndarray:
    """Returns the seconds after each round."""
    return curve(records, "/round/seconds").cumsum(1)


COSTS: dict[str, tuple[str, Callable[[Sequence[RunRecord]], np.ndarray]]] = {
    "rounds": ("round", rounds_so_far),
    "bytes": ("B up and down", bytes_so_far),
    "seconds": ("seconds", seconds_so_far),
}
VIRTUAL = "virtual seconds", lambda records: curve(records, "/virtual/seconds").cumsum(1)
WIDE = 5
"""Traffic that differs by more than this factor has a logarithmic axis."""
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}


def axis_unit(axes: Sequence[Axes], name: str) -> None:
    """Names the horizontal axes; bytes are shown in a unit that fits the largest."""
    if not name.startswith("B "):
        for panel in axes:
            panel.set_xlabel(name)
        return
    top = max(panel.get_xlim()[1] for panel in axes)
    unit = next((unit for unit, size in UNITS.items() if top >= size), "B")
    for panel in axes:
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / UNITS[unit]:g}"))
        panel.set_xlabel(name.replace("B", unit, 1))


OWN = " Each method by the inference that counts for it; the verdict compares equal ones."


def accuracy_by_round(data: FigureData) -> Drawing:
    sentence = "How fast each method learns; bands are ± one standard deviation over seeds."
    return _accuracy(data, "rounds", sentence)


def accuracy_by_bytes(data: FigureData) -> Drawing:
    """Accuracy by bytes; what exchanges nothing is a horizontal line at its last accuracy."""
    sentence = "What accuracy costs in traffic; a method without traffic is a horizontal line."
    return _accuracy(data, "bytes", sentence)


def accuracy_by_seconds(data: FigureData) -> Drawing:
    return _accuracy(data, "seconds", "What accuracy costs in time on the machine that ran it.")


def accuracy_by_virtual_time(data: FigureData) -> Drawing:
    """The same on the devices that are simulated."""
    if all(np.isnan(VIRTUAL[1](shown(s))).any() for setting in data.settings for s in setting.series):
        raise NoData("no run has a virtual clock ([system], or hpcfl clock)")
    return _accuracy(
        data, "virtual seconds", "What accuracy costs in time on the devices that are simulated."
    )


def _is_wide(data: FigureData) -> bool:
    """Returns whether the traffic of some series would be squeezed into a corner of a linear axis."""
    totals = [float(bytes_so_far(shown(s)).max(initial=0.0)) for panel in data.panels for s in panel.series]
    known = [total for total in totals if total > 0]
    return bool(known) and max(known) > WIDE * min(known)


def _accuracy(data: FigureData, cost: str, sentence: str) -> Drawing:
    """Returns a panel for each setting with a line for each series."""
    name, cost_of = VIRTUAL if cost == "virtual seconds" else COSTS[cost]
    figure, axes = new_figure(len(data.panels), sharey=True)
    rows: list[tuple[object, ...]] = []
    for panel, setting in zip(axes, data.panels, strict=True):
        for series in setting.series:
            accuracy = curve(shown(series), "/round/accuracy")
            costs = cost_of(shown(series)).mean(0)
            evaluated = ~np.isnan(accuracy).any(0) & ~np.isnan(costs)
            if not evaluated.any():
                continue
            mean, spread = mean_and_spread(accuracy[:, evaluated])
            x = costs[evaluated]
            style = data.styles[series.label]
            if x[-1] == 0:  # no traffic, or infinitely fast devices
                line = {key: style[key] for key in ("color", "linestyle", "gid")}
                panel.axhline(100 * mean[-1], label=label_text(series.label), **line)
            else:
                draw_mean(panel, x, 100 * mean, 100 * spread, series.label, style)
            rows += [
                (setting.name, series.label, *map(float, row)) for row in zip(x, mean, spread, strict=True)
            ]
        panel.set(title=title_text(setting.name, len(data.panels)))
        if cost == "rounds":
            whole_numbers(panel.xaxis)
        if cost == "virtual seconds" or (cost == "bytes" and _is_wide(data)):
            logarithmic_x(panel)
        panel.margins(x=0.02)
    axis_unit(axes, name)
    if not rows:
        raise NoData("no round was evaluated")
    for panel in axes[::3] if len(axes) > 2 else axes[:1]:
        panel.set_ylabel("accuracy in %")
    add_legend(figure, axes)
    columns = ("setting", "method", name, "accuracy mean", "accuracy std")
    return Drawing(figure, sentence + OWN + data.left_out(), columns, rows)
