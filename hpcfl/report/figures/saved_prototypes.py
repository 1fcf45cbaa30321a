"""Global prototypes of the last saved round: cosines, values, and which features they use."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcfl.report.figures.drawing import MAX_PANELS, Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import label_text, new_figure, whole_numbers
from hpcfl.report.figures.values import set_cells
from hpcfl.report.series import Series

MAX_ROWS = 200_000
"""Up to so many values the data of a heatmap are written as CSV."""


def last_prototypes(series: Series) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the prototypes of the first run of a series, and which classes have one; None: not two do."""
    record = shown(series)[0]
    if "/prototypes/global" in record.run.lacking:
        return None
    run = record.read("/prototypes/global")
    if not len(run["/prototypes/global"]):
        return None
    proto_KD = run["/prototypes/global"][-1].astype(np.float64)
    present_K = np.isfinite(proto_KD).all(1) & (np.abs(proto_KD).sum(1) > 0)
    return (proto_KD, present_K) if present_K.sum() > 1 else None


def _first(data: FigureData, with_zeros: bool = False) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Returns label, prototypes and present classes of the first series with any, or with zeros in them."""
    found = ((series.label, last_prototypes(series)) for series in data.main.series)
    known = ((label, *protos) for label, protos in found if protos)
    chosen = [each for each in known if not with_zeros or not each[1][each[2]].all()][:MAX_PANELS]
    if not chosen:
        raise NoData(f"no run has saved global prototypes{' with zeros' if with_zeros else ''}")
    return chosen


def cosine_matrices(data: FigureData) -> Drawing:
    """Cosines of all pairs of global prototypes."""
    found = _first(data)
    figure, axes = new_figure(len(found), height=2.3)
    rows: list[tuple[object, ...]] = []
    for panel, (label, proto_KD, present_K) in zip(axes, found, strict=True):
        norm_K1 = np.linalg.norm(proto_KD, axis=1, keepdims=True)
        unit_KD = np.where(present_K[:, None], proto_KD / np.where(present_K[:, None], norm_K1, 1), np.nan)
        cosine_KK = unit_KD @ unit_KD.T
        image = panel.imshow(cosine_KK, vmin=-1, vmax=1, cmap="PuOr", interpolation="none")
        set_cells(image, cosine_KK, "class", "class", "cosine")
        largest = np.nanmax(np.where(np.eye(len(cosine_KK), dtype=bool), np.nan, cosine_KK))
        panel.set(title=f"{label_text(label)}\nlargest {largest:.2f}", xlabel="class", ylabel="class")
        panel.set_gid(data.styles[label]["gid"])
        panel.grid(visible=False)
        whole_numbers(panel.xaxis, panel.yaxis)
        if len(rows) < MAX_ROWS:
            cells = np.argwhere(~np.isnan(cosine_KK)).tolist()
            rows += [(label, a, b, float(cosine_KK[a, b])) for a, b in cells]
    figure.colorbar(image, ax=axes, label="cosine", shrink=0.8)
    sentence = "Cosines of the global prototypes at the end: off the diagonal, 0 or less is well separated."
    return Drawing(
        figure, sentence + data.first(len(found)), ("method", "class", "other class", "cosine"), rows
    )


def prototype_values(data: FigureData) -> Drawing:
    """Global prototypes as heatmaps of class × feature, each divided by its largest absolute value."""
    sentence = "Which features each class uses at the end; classes whose rows look alike are confused."
    return _heatmaps(data, sentence, binary=False)


def prototype_features(data: FigureData) -> Drawing:
    """The same in binary form: which values are not zero."""
    sentence = "Which values of the prototypes are not zero: sparse methods give each class its own features."
    return _heatmaps(data, sentence, binary=True)


def _heatmaps(data: FigureData, sentence: str, binary: bool) -> Drawing:
    """Returns a panel of class × feature for each series; in binary form for those with zeros."""
    found = _first(data, with_zeros=binary)
    figure, axes = new_figure(len(found), columns=2, height=1.8)
    rows: list[tuple[object, ...]] = []
    for panel, (label, proto_KD, present_K) in zip(axes, found, strict=True):
        known_KD = np.where(present_K[:, None], proto_KD, np.nan)
        if binary:
            known_KD = np.where(np.isnan(known_KD), np.nan, known_KD != 0)
        top = np.nanmax(np.abs(known_KD))
        look: dict[str, Any] = {"vmin": -1, "vmax": 1, "cmap": "PuOr"}
        image = panel.imshow(known_KD / (top or 1), aspect="auto", interpolation="none", **look)
        set_cells(image, known_KD, "feature", "class", "not zero" if binary else "value")
        share = f"{np.nanmean(known_KD):.1%} not zero" if binary else f"1 = {top:.3g}"
        panel.set(title=f"{label_text(label)} ({share})", xlabel="feature", ylabel="class")
        panel.set_gid(data.styles[label]["gid"])
        panel.grid(visible=False)
        whole_numbers(panel.xaxis, panel.yaxis)
        if known_KD.size + len(rows) <= MAX_ROWS:
            rows += [(label, k, d, float(value)) for (k, d), value in np.ndenumerate(known_KD)]
    if not binary:
        figure.colorbar(image, ax=axes, label="value ÷ the largest", shrink=0.8)
    return Drawing(figure, sentence + data.first(len(found)), ("method", "class", "feature", "value"), rows)
