"""Rounds, bytes and seconds until a target accuracy is reached."""

from __future__ import annotations

import numpy as np

from hpcfl.report.figures.curves import COSTS, axis_unit
from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, curve, shown
from hpcfl.report.figures.style import label_rows, new_figure
from hpcfl.report.figures.values import set_texts
from hpcfl.report.series import Series, Setting
from hpcfl.utils.formatting import format_bytes

OF_BEST = 0.9
"""Without --target, the target is this share of the best accuracy."""


def target_accuracy(setting: Setting, target: float | None) -> float:
    """Returns the target, or a share of the best accuracy of a setting."""
    values = np.concatenate([curve(shown(series), "/round/accuracy").ravel() for series in setting.series])
    if np.isnan(values).all():
        raise NoData("no round was evaluated")
    return OF_BEST * float(np.nanmax(values)) if target is None else target


def costs_to_reach(series: Series, target: float) -> dict[str, list[float]]:
    """Returns the costs of each run up to the first round with the target; runs without one are left out."""
    found = [cost for record in shown(series) if (cost := record.run.to_target(target)) is not None]
    return {
        "rounds": [float(cost.rounds) for cost in found],
        "bytes": [float(cost.bytes_up + cost.bytes_down) for cost in found],
        "seconds": [cost.seconds for cost in found],
    }


def costs_to_target(data: FigureData) -> Drawing:
    """Bars of the mean costs over seeds that reach the target, a tick for each seed."""
    setting = data.main
    target = target_accuracy(setting, data.target)
    found = [costs_to_reach(series, target) for series in setting.series]
    if not any(costs["rounds"] for costs in found):
        raise NoData(f"no run reaches an accuracy of {target:.1%}")
    figure, axes = new_figure(3, height=max(1.6, 0.24 * len(found) + 0.9), sharey=True)
    rows: list[tuple[object, ...]] = []
    for i, (series, costs) in enumerate(zip(setting.series, found, strict=True)):
        means = []
        for panel, name in zip(axes, COSTS, strict=True):
            values = costs[name]
            means.append(float(np.mean(values)) if values else float("nan"))
            text = format_bytes(means[-1]) if name == "bytes" else f"{means[-1]:.3g}"
            if values:
                look = {key: data.styles[series.label][key] for key in ("color", "gid")}
                [bar] = panel.barh(i, means[-1], height=0.65, **look)
                set_texts(bar, [f"{series.label}: {text}{'' if name == 'bytes' else ' ' + name}"])
                panel.plot(values, [i] * len(values), "|", color="#444444", markersize=6, gid=look["gid"])
            place = (max(values, default=0.0), i)
            text = text if values else "not reached"
            look = {"textcoords": "offset points", "va": "center", "fontsize": 6.5}
            panel.annotate(text, place, (4, 0), gid=data.styles[series.label]["gid"], **look)
        rows.append((series.label, f"{len(costs['rounds'])} of {len(shown(series))}", *means))
    for panel, (cost, (name, _)) in zip(axes, COSTS.items(), strict=True):
        panel.margins(x=0.3)
        is_free = not any(value for costs in found for value in costs[cost])
        panel.set_xlim(0, 1 if is_free else None)
        panel.grid(visible=False, axis="y")
        axis_unit([panel], "rounds" if name == "round" else name)
    label_rows(axes[0], [series.label for series in setting.series], data.styles)
    source = f"{OF_BEST:.0%} of the best" if data.target is None else "--target"
    sentence = f"What each method needs to reach an accuracy of {target:.1%} ({source}); ticks are seeds."
    columns = ("method", "seeds that reach it", *COSTS)
    return Drawing(figure, sentence + data.where(), columns, rows)
