"""Metrics of a round as lines: losses, gradients, silhouette, and the geometry of prototypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, mean_and_spread, shown
from hpcfl.report.figures.style import (
    add_legend,
    draw_mean,
    logarithmic_y,
    new_figure,
    whole_numbers,
)
from hpcfl.report.records import RunRecord
from hpcfl.report.series import Setting

FAR, LABELLED = 30, 5
"""Lines that differ by a factor of FAR, and ratios that differ by LABELLED, have a logarithmic axis."""


@dataclass(frozen=True)
class Panel:
    """A panel: a dataset by round, or by round and class (the mean over classes is shown)."""

    title: str
    path: str
    component: int | None = None
    """Of datasets with statistics: 0 least, 1 mean, 2 largest."""
    is_log: bool = False
    zero_is_none: bool = False
    """Whether a series without any other value than 0 has no line."""
    is_error: bool = False
    """Whether 1 minus the value is shown, in %."""


LOSSES = (
    Panel("cross-entropy", "/round/loss_ce"),
    Panel("alignment", "/round/loss_align"),
    Panel("proxy", "/round/loss_proxy"),
    Panel("consistency", "/round/loss_consistency"),
    Panel("distillation", "/round/loss_distill"),
    Panel("variance", "/round/loss_variance"),
    Panel("uniformity", "/round/loss_uniformity"),
    Panel("on generated features", "/round/loss_generated"),
    Panel("contrast of features", "/round/loss_high"),
    Panel("contrast of the lower level", "/round/loss_low"),
    Panel("soft labels", "/round/loss_soft"),
    Panel("from the auxiliary network", "/round/loss_mutual"),
    Panel("of the auxiliary network", "/round/loss_auxiliary"),
    Panel("mapped features", "/round/loss_features"),
    Panel("weight λ", "/round/weight"),
)
GRADIENTS = (
    Panel("alignment ÷ cross-entropy", "/round/gradient_align", is_log=True),
    Panel("proxy ÷ cross-entropy", "/round/gradient_proxy", is_log=True),
)
MARGINS = (
    Panel("margin of global prototypes", "/prototypes/margin"),
    Panel("largest margin of local ones", "/prototypes/margin_clients"),
    Panel("global margin ÷ the largest", "/prototypes/margin_normalised"),
)
GEOMETRY = (
    Panel("least distance", "/prototypes/distance", 0),
    Panel("mean distance", "/prototypes/distance", 1),
    Panel("largest cosine", "/prototypes/cosine", 2),
    Panel("energy", "/prototypes/energy"),
    Panel("unreachable by a ReLU", "/prototypes/unreachable"),
    Panel("server's iterations or steps", "/refine/iterations", zero_is_none=True),
)
TRAINING_ERROR = tuple(
    Panel(f"training error in %, by {name}", f"/round/train_accuracy_{inference}", is_error=True)
    for inference, name in {
        "global": "global prototypes",
        "local": "local prototypes",
        "head": "head",
    }.items()
)
SILHOUETTE = (
    Panel("silhouette of test features", "/round/silhouette"),
    Panel("personalisation of heads", "/round/personalisation"),
)


def loss_terms(data: FigureData) -> Drawing:
    return _lines(data, LOSSES, "Which terms of the loss fall, unweighted, and the weight of the alignment.")


def gradient_ratios(data: FigureData) -> Drawing:
    sentence = "How strongly a term pulls the features, relative to the cross-entropy: above 1 it dominates."
    return _lines(data, GRADIENTS, sentence)


def margins(data: FigureData) -> Drawing:
    sentence = (
        "Distance of a prototype to the nearest other class, mean over classes: larger separates better."
    )
    return _lines(data, MARGINS, sentence)


def prototype_geometry(data: FigureData) -> Drawing:
    sentence = "How the global prototypes lie to each other: far apart and at wide angles is good."
    return _lines(data, GEOMETRY, sentence)


def silhouette(data: FigureData) -> Drawing:
    sentence = (
        "How well test features cluster by class (1 is best), and how far heads are from following the class "
        "counts (0: they do)."
    )
    return _lines(data, SILHOUETTE, sentence)


def training_error(data: FigureData) -> Drawing:
    """Shows the main setting, or the first one whose runs have it: few runs of a study may log it."""
    have = (
        setting
        for setting in (data.main, *data.settings)
        for series in setting.series
        if any(_values(shown(series), panel) is not None for panel in TRAINING_ERROR)
    )
    sentence = "Wrong answers on the clients' own training samples, after each round."
    return _lines(data, TRAINING_ERROR, sentence, next(have, data.main))


def _lines(
    data: FigureData, panels: Sequence[Panel], sentence: str, setting: Setting | None = None
) -> Drawing:
    """Returns a panel for each dataset that some run of a setting has, with a line for each series."""
    values = {
        (panel, series.label): found
        for panel in panels
        for series in (setting or data.main).series
        if (found := _values(shown(series), panel)) is not None
    }
    known = [panel for panel in panels if any(each is panel for each, _ in values)]
    if not known:
        paths = ", ".join(dict.fromkeys(panel.path for panel in panels))
        raise NoData(f"no run has values of {paths}")
    figure, axes = new_figure(len(known), height=2.1)
    rows: list[tuple[object, ...]] = []
    for (panel, label), found in values.items():
        axis = axes[known.index(panel)]
        rounds = np.flatnonzero(~np.isnan(found).any(0))
        mean, spread = mean_and_spread(found[:, rounds])
        draw_mean(axis, rounds + 1, mean, spread, label, data.styles[label])
        numbers = zip((rounds + 1).tolist(), mean.tolist(), spread.tolist(), strict=True)
        rows += [(panel.title, label, *row) for row in numbers]
    for panel, axis in zip(known, axes, strict=True):
        axis.set(title=panel.title, xlabel="round")
        whole_numbers(axis.xaxis)
        shown_values = [found for (each, _), found in values.items() if each is panel]
        if _ratios_differ(shown_values) if panel.is_log else _are_far_apart(shown_values):
            logarithmic_y(axis)
    add_legend(figure, axes)
    columns = ("metric", "method", "round", "mean", "std")
    return Drawing(figure, sentence + data.where(setting), columns, rows)


def _ratios_differ(found: Sequence[np.ndarray]) -> bool:
    """Returns whether positive values, zeros aside, differ by a factor that a logarithmic axis can label."""
    positive = np.concatenate([values[values > 0] for values in found])
    return len(positive) > 0 and bool(positive.max() > LABELLED * positive.min())


def _are_far_apart(found: Sequence[np.ndarray]) -> bool:
    """Returns whether the lines of a panel would lie on its bottom but for one; none has a zero or less."""
    known = [values[~np.isnan(values)] for values in found]
    middles = [float(np.median(values)) for values in known]
    return all((values > 0).all() for values in known) and max(middles) > FAR * min(middles)


def _values(records: Sequence[RunRecord], panel: Panel) -> np.ndarray | None:
    """Returns a dataset of all runs of a series, [run × round]; None: some run has no value."""
    rounds = min(record.run.rounds_done for record in records)
    rows = []
    for record in records:
        if panel.path in record.run.lacking:
            return None
        run = record.run if panel.path in record.run.datasets else record.read(panel.path)
        if panel.path not in run.datasets:
            return None
        values = np.asarray(run[panel.path][:rounds], dtype=float)
        if panel.component is not None:
            values = values[:, panel.component]
        elif values.ndim > 1:
            known = ~np.isnan(values)
            sums = np.where(known, values, 0).sum(1)
            values = np.divide(sums, known.sum(1), out=np.full(len(values), np.nan), where=known.any(1))
        rows.append(100 * (1 - values) if panel.is_error else values)
    found = np.array(rows).reshape(len(rows), rounds)
    has_line = (~np.isnan(found).any(0)).any() and (not panel.zero_is_none or np.nan_to_num(found).any())
    return found if has_line else None
