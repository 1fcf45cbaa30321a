"""Margins of every class: global prototypes beside the clients' (FedTGP's Fig. 1 and ProtoNorm's Fig. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hpcfl.report.figures.drawing import MAX_PANELS, Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import add_legend, label_text, new_figure, whole_numbers
from hpcfl.report.figures.values import set_texts
from hpcfl.report.series import Series

PATH = "/prototypes/margin_common"
LOOKS: tuple[tuple[str, bool, dict[str, Any]], ...] = (
    ("global, at least as large", True, {"marker": "^", "color": "#0072B2"}),
    ("global, smaller", False, {"marker": "v", "color": "#D55E00"}),
)
CLIENTS: dict[str, Any] = {"marker": "o", "color": "#777777", "markerfacecolor": "white"}


def margins_of_classes(data: FigureData) -> Drawing:
    """A panel for each of the first methods with the margins of each class after the last round."""
    found: list[tuple[str, np.ndarray]] = []
    for series in data.main.series:
        margins_K2 = _last_margins(series)
        if margins_K2 is not None and len(found) < MAX_PANELS:
            found.append((series.label, margins_K2))
    if not found:
        raise NoData(f"no run has values of {PATH}")
    figure, axes = new_figure(len(found), height=1.9, sharey=True)
    rows: list[tuple[object, ...]] = []
    for panel, (label, margins_K2) in zip(axes, found, strict=True):
        _draw(panel, label, margins_K2)
        panel.set(title=label_text(label), xlabel="class", ylim=(-0.05, 1.1), gid=data.styles[label]["gid"])
        whole_numbers(panel.xaxis)
        rows += [(label, k, *map(float, margins_2)) for k, margins_2 in enumerate(margins_K2)]
    for panel in axes[::3]:
        panel.set_ylabel("margin ÷ the largest")
    add_legend(figure, axes)
    sentence = (
        "How far every class is from the nearest other one, after the last round of the first seed: equal "
        "heights are evenly spread prototypes; below the clients' circle, aggregation has shrunk the margin."
    )
    columns = ("method", "class", "margin of the global prototypes", "largest margin of the clients'")
    return Drawing(figure, sentence + data.first(len(found)), columns, rows)


def _last_margins(series: Series) -> np.ndarray | None:
    """Returns the margins of global and clients' prototypes after the last round, ÷ the largest of both."""
    record = shown(series)[0]
    if not record.run.rounds_done or PATH in record.run.lacking:
        return None
    run = record.read(PATH)
    margins_K2 = run[PATH][-1] if PATH in run.datasets else np.full((1, 2), np.nan)
    return None if np.isnan(margins_K2[:, 0]).all() else margins_K2


def _draw(panel: Axes, label: str, margins_K2: np.ndarray) -> None:
    """Draws the clients' margin of each class as a circle and the global one as a triangle."""
    global_K, clients_K = margins_K2.T
    size, width = (4, 0.8) if len(global_K) <= 30 else (2.5, 0.4)
    panel.vlines(range(len(global_K)), global_K, clients_K, color="#999999", linewidth=width)
    classes = np.flatnonzero(~np.isnan(clients_K))
    [circles] = panel.plot(
        classes, clients_K[classes], linestyle="", markersize=size, label="clients' largest", **CLIENTS
    )
    set_texts(circles, [f"{label}, class {k}, the clients' largest: {clients_K[k]:.3g}" for k in classes])
    for words, is_above, look in LOOKS:
        chosen = ~np.isnan(global_K) & (~(global_K < clients_K) == is_above)
        classes = np.flatnonzero(chosen)
        [points] = panel.plot(classes, global_K[classes], linestyle="", markersize=size, label=words, **look)
        set_texts(points, [f"{label}, class {k}, global: {global_K[k]:.3g}" for k in classes])
