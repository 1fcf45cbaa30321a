"""How ProtoNorm's solver moves prototypes apart, iteration by iteration (its Figs. 3 and 4)."""

from __future__ import annotations

import numpy as np

from hpcfl.log.schema import COMPONENT_NAMES
from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import add_legend, label_text, new_figure


def alignment_iterations(data: FigureData) -> Drawing:
    """Least, mean and largest distance of prototypes by iteration, in the last saved round."""
    found = []
    for series in data.main.series:
        record = shown(series)[0]
        if "/refine/distances" not in record.run.lacking:
            distances = record.read("/refine/distances")["/refine/distances"]
            if distances.size and not np.isnan(distances[-1]).all():
                found.append((series.label, distances[-1][~np.isnan(distances[-1]).any(1)]))
    if not found:
        raise NoData("no run has saved distances by iteration (log.distances = true, for a solver)")
    names = COMPONENT_NAMES["statistic"]
    figure, axes = new_figure(len(names), height=2.1)
    rows: list[tuple[object, ...]] = []
    for label, distances in found:
        for panel, values in zip(axes, distances.T, strict=True):
            style = data.styles[label] | {"marker": ""}
            panel.plot(np.arange(len(values)), values, label=label_text(label), **style)
        rows += [(label, i, *map(float, row)) for i, row in enumerate(distances)]
    for panel, name in zip(axes, names, strict=True):
        panel.set(title=f"{name} distance", xlabel="iteration")
    add_legend(figure, axes)
    sentence = "How far the solver moves prototypes apart within one round, the last that was saved."
    return Drawing(figure, sentence + data.where(), ("method", "iteration", *names), rows)
