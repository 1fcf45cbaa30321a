"""Heatmap of a partition: class × client (FedTGP's Figs. 7-11, ProtoNorm's Figs. 7-8)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcfl.federation.run_plan import RunPlan
from hpcfl.utils.files import move_into_place, temporary_path

MAX_TICKS = 40
"""Up to so many classes, or clients, each one is labelled on its axis."""
MAX_NUMBERS = 500
"""Up to so many cells, each one shows its number."""


def draw_heatmap(path: Path, plan: RunPlan) -> None:
    """Writes the training samples of every client and class as a heatmap; empty cells stay white."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LogNorm

    counts_KM = plan.class_counts_MK.T
    classes, clients = counts_KM.shape
    wide, high = np.clip(clients * 0.45, 5, 16), np.clip(classes * 0.35, 3, 9)
    figure, axes = pyplot.subplots(figsize=(wide + 2.5, high + 1.2), layout="constrained")
    shown = np.ma.masked_equal(counts_KM, 0)
    top = max(2, int(counts_KM.max()))
    image = axes.imshow(shown, norm=LogNorm(1, top), cmap="viridis_r", aspect="auto", interpolation="none")
    if counts_KM.size <= MAX_NUMBERS:
        for (k, i), count in np.ndenumerate(counts_KM):
            if count:
                colour = "white" if count > top**0.5 else "black"
                axes.text(i, k, str(count), ha="center", va="center", fontsize=6, color=colour)
    if classes <= MAX_TICKS:
        names = [name[:24] for name in plan.data.class_names]
        axes.set_yticks(range(classes), names, fontsize=7, parse_math=False)
    if clients <= MAX_TICKS:
        axes.set_xticks(range(clients), [str(i) for i in range(clients)], fontsize=7)
    axes.set(xlabel="client", ylabel="class", title=_title(plan))
    figure.colorbar(image, ax=axes, label="training samples", aspect=30, pad=0.02)
    with temporary_path(path) as part:
        figure.savefig(part, format=path.suffix[1:], dpi=150)
        move_into_place(part, path)
    pyplot.close(figure)


def _title(plan: RunPlan) -> str:
    settings = plan.config.partition
    names = {
        "dirichlet": f"dirichlet, α = {settings.alpha:g}",
        "pathological": f"pathological, {settings.classes_per_client} classes per client",
        "nway_kshot": f"{settings.ways:g}-way {settings.shots:g}-shot, σ = {settings.deviation:g}",
    }
    style = ", as published" if settings.style == "published" else ""
    return f"{plan.config.data.name}: {names.get(settings.name, settings.name)}{style}"
