"""Which rank trained which client, and when."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import COLOURS, HATCHES, add_legend, label_text, new_figure, whole_numbers
from hpcfl.report.figures.values import set_texts

PATHS = ("/client/rank", "/client/started", "/client/seconds")
MAX_SERIES = 4
MIN_WIDTH = 0.025
"""A bar shows the number of its client if it takes at least this share of the longest round."""


def training_of_clients(data: FigureData) -> Drawing:
    """A bar for each client of the last round, in the row of the rank that trained it."""
    found = []
    for series in data.main.series:
        record = shown(series)[0]
        if record.run.rounds_done and "/client/started" not in record.run.lacking:
            run = record.read(*PATHS)
            values = [run[path][-1] for path in PATHS]
            if not np.isnan(values[1]).all():
                found.append((series.label, record.run["/clients/architecture"], *values))
    if not found:
        raise NoData("no run has logged when clients began (/client/started is new)")
    found = found[:MAX_SERIES]
    names = list(dict.fromkeys(name for _, architecture_M, *_ in found for name in architecture_M))
    most = max(len(set(rank_M[rank_M >= 0])) for _, _, rank_M, *_ in found)
    figure, axes = new_figure(len(found), columns=1, height=0.16 * most + 0.5, sharex=True)
    end = max(float(np.nanmax(started_M + seconds_M)) for *_, started_M, seconds_M in found)
    rows: list[tuple[object, ...]] = []
    labelled: set[int] = set()
    for panel, (label, architecture_M, rank_M, started_M, seconds_M) in zip(axes, found, strict=True):
        trained = np.flatnonzero(~np.isnan(started_M))
        for i in trained:
            n = names.index(architecture_M[i])
            look: dict[str, Any] = {"color": COLOURS[n % len(COLOURS)]}
            look["hatch"] = HATCHES[n // len(COLOURS) % len(HATCHES)]
            name = None if n in labelled else label_text(architecture_M[i])
            labelled.add(n)
            place = {"left": started_M[i], "height": 0.8, "edgecolor": "white", "linewidth": 0.4}
            [bar] = panel.barh(rank_M[i], seconds_M[i], label=name, **place, **look)
            text = f"client {i} ({architecture_M[i]}), rank {rank_M[i]}: {seconds_M[i]:.3g} s"
            set_texts(bar, [f"{text}, from {started_M[i]:.3g} s on"])
            if seconds_M[i] > MIN_WIDTH * end:
                middle = (started_M[i] + seconds_M[i] / 2, rank_M[i])
                ink = "white" if look["color"] == COLOURS[0] else "black"
                panel.annotate(str(i), middle, ha="center", va="center", fontsize=5, color=ink)
            times = (float(started_M[i]), float(seconds_M[i]))
            rows.append((label, int(rank_M[i]), int(i), architecture_M[i], *times))
        panel.set(title=label_text(label), ylabel="rank", gid=data.styles[label]["gid"])
        panel.set_ylim(rank_M.max() + 0.6, rank_M[trained].min() - 0.6)
        panel.grid(visible=False, axis="y")
        whole_numbers(panel.yaxis)
    axes[-1].set(xlabel="seconds since the round's broadcast", xlim=(0, None))
    add_legend(figure, axes)
    sentence = "Which rank trained which client in the last round, and when: gaps are ranks that wait."
    columns = ("method", "rank", "client", "network", "started", "seconds")
    return Drawing(figure, sentence + data.first(len(found), MAX_SERIES), columns, rows)
