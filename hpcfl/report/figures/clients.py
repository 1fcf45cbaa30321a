"""Clients: which classes they have, and what each gains."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, LogNorm

from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import add_legend, label_text, new_figure, plain_numbers, whole_numbers
from hpcfl.report.figures.values import set_cells, set_texts
from hpcfl.report.verdict import COUNTERPART, WORDS

MAX_NUMBERS = 250
"""Up to so many cells, each one shows its number."""
MAX_BUBBLES = 4000
SHADES = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1, 256)))
"""Blues without those that look like white, which is no sample."""


def _counts(data: FigureData) -> np.ndarray:
    """Returns the training samples by client and class of the first run."""
    record = shown(data.main.series[0])[0]
    if "/clients/class_counts" not in record.run.datasets:
        raise NoData("the log has no class counts")
    return record.run["/clients/class_counts"]


def _rows(counts_MK: np.ndarray) -> list[tuple[object, ...]]:
    return [(i, k, int(n)) for (i, k), n in np.ndenumerate(counts_MK)]


def class_heatmap(data: FigureData) -> Drawing:
    """Training samples of each client and class as a heatmap."""
    counts_MK = _counts(data)
    classes = counts_MK.shape[1]
    figure, [panel] = new_figure(1, height=float(np.clip(0.2 * classes, 1.2, 4)))
    top = max(2, int(counts_MK.max()))
    values_KM = np.ma.masked_equal(counts_MK.T, 0)
    image = panel.imshow(values_KM, norm=LogNorm(1, top), cmap=SHADES, aspect="auto", interpolation="none")
    set_cells(image, counts_MK.T, "client", "class", "training samples")
    if counts_MK.size <= MAX_NUMBERS:
        for (i, k), count in np.ndenumerate(counts_MK):
            if count:
                colour = "white" if count > top**0.6 else "black"
                panel.annotate(str(count), (i, k), ha="center", va="center", fontsize=5, color=colour)
    panel.set(xlabel="client", ylabel="class")
    panel.grid(visible=False)
    whole_numbers(panel.xaxis, panel.yaxis)
    figure.colorbar(image, ax=panel, label="training samples", pad=0.02, format=plain_numbers())
    sentence = "Which client trains on how many samples of which class; white is none." + data.where()
    return Drawing(figure, sentence, ("client", "class", "samples"), _rows(counts_MK))


def class_bubbles(data: FigureData) -> Drawing:
    """Training samples of each client and class as bubbles, as in FedTGP's Figs. 7-11."""
    counts_MK = _counts(data)
    if counts_MK.size > MAX_BUBBLES:
        raise NoData(f"{counts_MK.size} bubbles would not be told apart; the heatmap shows them")
    figure, [panel] = new_figure(1, height=float(np.clip(0.2 * counts_MK.shape[1], 1.4, 5)))
    i, k = np.nonzero(counts_MK)
    clients, classes = counts_MK.shape
    area = 160 * counts_MK[i, k] / counts_MK.max() * min(1.0, 20 / clients, 60 / classes)
    bubbles = panel.scatter(i, k, s=area, color="#D55E00", alpha=0.75, linewidth=0, clip_on=False)
    cells = zip(i, k, counts_MK[i, k], strict=True)
    set_texts(bubbles, [f"client {i}, class {k}: {count} training samples" for i, k, count in cells])
    panel.set(xlabel="client", ylabel="class", xlim=(-0.7, clients - 0.3))
    panel.set_ylim(-0.7, classes - 0.3)
    whole_numbers(panel.xaxis, panel.yaxis)
    sentence = (
        f"The same by area: the largest bubble is {int(counts_MK.max())} training samples." + data.where()
    )
    return Drawing(figure, sentence, ("client", "class", "samples"), _rows(counts_MK))


def accuracy_per_client(data: FigureData) -> Drawing:
    """Accuracy of each client against that of the same client in `local`, by the same inference and seed."""
    deltas = [delta for delta in data.verdict.deltas if delta.series in data.main.series]
    if not deltas:
        raise NoData("no run can be compared with a run of local")
    kinds = list(dict.fromkeys(delta.inference for delta in deltas))
    figure, axes = new_figure(len(kinds), height=2.9 if len(kinds) < 3 else 2.5)
    rows: list[tuple[object, ...]] = []
    for delta in deltas:
        style = data.styles[delta.series.label]
        for n, (one, alone) in enumerate(delta.runs):
            one_M = np.nan_to_num(one.accuracy[delta.inference])
            alone_M = np.nan_to_num(alone.accuracy[COUNTERPART[delta.inference]])
            label = label_text(delta.series.label) if n == 0 else None
            look = {**style, "linestyle": "", "markersize": 4, "markeredgewidth": 0}
            panel = axes[kinds.index(delta.inference)]
            [points] = panel.plot(100 * alone_M, 100 * one_M, label=label, alpha=0.75, **look)
            values = list(enumerate(zip(one_M.tolist(), alone_M.tolist(), strict=True)))
            where = f"seed {one.seeds[0]}, {delta.series.label}"
            texts = [f"client {i}, {where}: {a:.2%}, local {b:.2%}" for i, (a, b) in values]
            set_texts(points, texts)
            rows += [(delta.series.label, delta.inference, one.seeds[0], i, *pair) for i, pair in values]
    for panel, inference in zip(axes, kinds, strict=True):
        low = max(-3.0, min(panel.get_xlim()[0], panel.get_ylim()[0]))
        ends = [low, min(103.0, max(panel.get_xlim()[1], panel.get_ylim()[1]))]
        panel.plot(ends, ends, color="black", linewidth=0.7, zorder=1)
        panel.set(xlim=ends, ylim=ends, aspect="equal", title=f"by {WORDS[inference]}")
        panel.set(xlabel="local, accuracy in %", ylabel="method, accuracy in %")
    add_legend(figure, axes)
    sentence = (
        "Each point is a client and seed: above the line it is better off than alone, below it worse off."
    )
    columns = ("method", "inference", "seed", "client", "accuracy", "accuracy of local")
    return Drawing(figure, sentence + data.where(), columns, rows)
