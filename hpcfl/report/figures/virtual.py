"""The virtual clock: time and energy to a target accuracy, and how often each client counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcfl.log.virtual_summary import NEEDED, format_joules, format_seconds, virtual_summary
from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import add_legend, label_text, logarithmic_x, new_figure, title_text
from hpcfl.report.figures.targets import OF_BEST, target_accuracy
from hpcfl.report.series import Series

NO_CLOCK = "no run has a virtual clock ([system], or hpcfl clock)"


def time_to_target(data: FigureData) -> Drawing:
    return _to_target(data, "virtual_seconds", "virtual seconds", format_seconds)


def energy_to_target(data: FigureData) -> Drawing:
    return _to_target(data, "joules", "J", format_joules)


def _to_target(data: FigureData, cost: str, unit: str, form: Callable[[float], str]) -> Drawing:
    """A panel for each setting: what each method needs to reach the target there, seeds as ticks."""
    most = max(len(setting.series) for setting in data.panels)
    figure, axes = new_figure(len(data.panels), height=max(1.6, 0.18 * most + 0.9))
    rows: list[tuple[Any, ...]] = []
    for panel, setting in zip(axes, data.panels, strict=True):
        target = target_accuracy(setting, data.target)
        for i, series in enumerate(setting.series):
            values = costs_to_reach(series, target, cost)
            mean = float(np.mean(values)) if values else float("nan")
            look = {key: data.styles[series.label][key] for key in ("color", "gid")}
            if values:
                panel.plot([mean], [i], "o", markersize=4, **look)
                panel.plot(values, [i] * len(values), "|", color="#444444", markersize=6, gid=look["gid"])
                place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 5.5}
                panel.annotate(form(mean), (mean, i), (5, 0), **place)
            rows.append((setting.name, series.label, target, len(values), len(shown(series)), mean))
        known = [row[-1] for row in rows if row[0] == setting.name and not np.isnan(row[-1])]
        if known:
            logarithmic_x(panel)
            panel.set_xlim(min(known) / 3, max(known) * 10)
        panel.set(title=title_text(setting.name, len(data.panels)), xlabel=unit)
        names = [label_text(series.label) for series in setting.series]
        panel.set_yticks(range(len(names)), names, fontsize=6)
        panel.set_ylim(len(names) - 0.5, -0.5)
    if all(np.isnan(row[-1]) for row in rows):
        raise NoData(f"{NO_CLOCK} and reaches the target")
    source = f"{OF_BEST:.0%} of the best of each panel" if data.target is None else f"--target {data.target}"
    what = {"joules": "energy", "virtual_seconds": "virtual time"}[cost]
    sentence = f"The {what} in which each method reaches the target accuracy ({source}), where it does."
    columns = ("setting", "method", "target", "seeds that reach it", "seeds", unit)
    return Drawing(figure, sentence + data.left_out(), columns, rows)


def costs_to_reach(series: Series, target: float, cost: str) -> list[float]:
    """Returns a cost of each run that reaches the target and knows it."""
    found = [getattr(record.run.to_target(target), cost, None) for record in shown(series)]
    return [float(value) for value in found if value is not None]


def participation(data: FigureData) -> Drawing:
    """A line for each series: how often each client counts, from the rarest to the most frequent."""
    figure, axes = new_figure(len(data.panels), sharey=True)
    rows: list[tuple[object, ...]] = []
    for panel, setting in zip(axes, data.panels, strict=True):
        for series in setting.series:
            record = shown(series)[0]
            if "/virtual/status" in record.run.lacking or not record.run.rounds_done:
                continue
            found = virtual_summary(record.read(*NEEDED))
            assert found is not None
            share_M = np.sort(found.counted_M) / record.run.rounds_done
            label, style = label_text(series.label), data.styles[series.label] | {"marker": ""}
            panel.plot(np.linspace(0, 1, len(share_M)), share_M, label=label, **style)
            rows += [
                (setting.name, series.label, found.fairness, rank, float(share))
                for rank, share in enumerate(share_M)
            ]
        panel.set(title=title_text(setting.name, len(data.panels)), xlabel="clients, the rarest first")
    if not rows:
        raise NoData(NO_CLOCK)
    axes[0].set_ylabel("share of rounds in which it counts")
    axes[0].set_ylim(0, 1.05)
    add_legend(figure, axes)
    sentence = "In which share of the rounds each client's upload counts; a flat line is fair. One seed."
    columns = ("setting", "method", "Jain's index", "rank of the client", "share of rounds")
    return Drawing(figure, sentence + data.left_out(), columns, rows)
