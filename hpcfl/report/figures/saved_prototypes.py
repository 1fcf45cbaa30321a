"""Global prototypes of the last saved round: cosines, values, and the plane if there are two features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import add_legend, label_text, new_figure

MAX_SERIES = 6
MAX_ROWS = 200_000
"""Up to so many values the data of a heatmap are written as CSV."""


def _last(data: FigureData) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields the label of each series, prototypes of its first run, and which classes have one."""
    shown_series = 0
    for series in data.main.series:
        record = shown(series)[0]
        if "/prototypes/global" in record.run.lacking or shown_series == MAX_SERIES:
            continue
        run = record.read("/prototypes/global")
        if len(run["/prototypes/global"]):
            proto_KD = run["/prototypes/global"][-1].astype(np.float64)
            present_K = np.isfinite(proto_KD).all(1) & (np.abs(proto_KD).sum(1) > 0)
            if present_K.sum() > 1:
                shown_series += 1
                yield series.label, proto_KD, present_K


def cosine_matrices(data: FigureData) -> Drawing:
    """Cosines of all pairs of global prototypes."""
    found = list(_last(data))
    if not found:
        raise NoData("no run has saved global prototypes")
    figure, axes = new_figure(len(found), height=2.3)
    rows: list[tuple[object, ...]] = []
    for panel, (label, proto_KD, present_K) in zip(axes, found, strict=True):
        unit = proto_KD[present_K] / np.linalg.norm(proto_KD[present_K], axis=1, keepdims=True)
        cosine = unit @ unit.T
        image = panel.imshow(cosine, vmin=-1, vmax=1, cmap="PuOr", interpolation="none")
        largest = cosine[~np.eye(len(cosine), dtype=bool)].max()
        panel.set(title=f"{label_text(label)}\nlargest {largest:.2f}", xlabel="class", ylabel="class")
        panel.grid(visible=False)
        classes = np.flatnonzero(present_K).tolist()
        if len(rows) < MAX_ROWS:
            rows += [
                (label, classes[a], classes[b], float(value)) for (a, b), value in np.ndenumerate(cosine)
            ]
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.8)
    sentence = "Cosines of the global prototypes at the end: off the diagonal, 0 or less is well separated."
    return Drawing(figure, sentence + data.where(), ("method", "class", "other class", "cosine"), rows)


def prototype_values(data: FigureData) -> Drawing:
    """Global prototypes as heatmaps of class × feature, each divided by its largest absolute value."""
    found = list(_last(data))
    if not found:
        raise NoData("no run has saved global prototypes")
    figure, axes = new_figure(len(found), columns=2, height=1.8)
    rows: list[tuple[object, ...]] = []
    for panel, (label, proto_KD, present_K) in zip(axes, found, strict=True):
        top = np.abs(proto_KD[present_K]).max()
        values = np.where(present_K[:, None], proto_KD / top, np.nan)
        image = panel.imshow(values, vmin=-1, vmax=1, cmap="PuOr", aspect="auto", interpolation="none")
        panel.set(title=f"{label_text(label)} (1 = {top:.3g})", xlabel="feature", ylabel="class")
        panel.grid(visible=False)
        if proto_KD.size + len(rows) <= MAX_ROWS:
            rows += [(label, k, d, float(value)) for (k, d), value in np.ndenumerate(proto_KD)]
    figure.colorbar(image, ax=axes, label="value ÷ the largest", shrink=0.8)
    sentence = "Which features each class uses at the end; classes whose rows look alike are confused."
    return Drawing(figure, sentence + data.where(), ("method", "class", "feature", "value"), rows)


def prototypes_in_the_plane(data: FigureData) -> Drawing:
    """Global prototypes themselves, where they have two features (ProtoNorm's Fig. 2)."""
    found = [each for each in _last(data) if each[1].shape[1] == 2]
    if not found:
        raise NoData("no run has prototypes with two features (models.features = 2)")
    figure, axes = new_figure(len(found), height=2.4)
    rows: list[tuple[object, ...]] = []
    for panel, (label, proto_KD, present_K) in zip(axes, found, strict=True):
        style = data.styles[label]
        for k in np.flatnonzero(present_K):
            panel.plot([0, proto_KD[k, 0]], [0, proto_KD[k, 1]], color="#999999", linewidth=0.7)
            panel.annotate(f" {k}", proto_KD[k])
            rows.append((label, int(k), *map(float, proto_KD[k])))
        look = {**style, "linestyle": ""}
        panel.plot(*proto_KD[present_K].T, label=label_text(label), **look)
        panel.set(title=label_text(label), aspect="equal", xlabel="feature 0", ylabel="feature 1")
        panel.margins(0.15)
    add_legend(figure, axes)
    sentence = "The global prototypes in the last saved round, by class: wide angles separate classes."
    return Drawing(figure, sentence + data.where(), ("method", "class", "feature 0", "feature 1"), rows)
