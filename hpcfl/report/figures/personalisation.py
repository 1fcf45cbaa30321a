"""How heads follow the classes of their clients (the sparse paper's Figs. 3 and 10)."""

from __future__ import annotations

import numpy as np

from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import label_text, new_figure, whole_numbers
from hpcfl.report.figures.values import set_cells

MAX_SERIES = 5


def head_norms(data: FigureData) -> Drawing:
    """Norms of head weights by client and class, scaled to 0 … 1 per client, beside the class counts."""
    panels: list[tuple[str, np.ndarray]] = []
    for series in data.main.series:
        record = shown(series)[0]
        if "/client/head_norms" in record.run.lacking or len(panels) > MAX_SERIES:
            continue
        norms = record.read("/client/head_norms")["/client/head_norms"]
        if len(norms) and not np.isnan(norms[-1]).all():
            if not panels:
                panels.append(("training samples", record.run["/clients/class_counts"].astype(float)))
            panels.append((series.label, norms[-1]))
    if not panels:
        raise NoData("no run has saved norms of heads")
    figure, axes = new_figure(len(panels), height=1.9)
    rows: list[tuple[object, ...]] = []
    for n, (panel, (label, values_MK)) in enumerate(zip(axes, panels, strict=True)):
        known_MK = np.ma.masked_invalid(values_MK)
        known_MK = known_MK - known_MK.min(1, keepdims=True)
        share_MK = known_MK / np.ma.maximum(known_MK.max(1, keepdims=True), 1e-12)
        image = panel.imshow(share_MK.T, vmin=0, vmax=1, cmap="Blues", aspect="auto", interpolation="none")
        set_cells(image, values_MK.T, "client", "class", "norm" if n else "")
        panel.set_gid(data.styles[label]["gid"] if n else None)
        panel.set(title=label_text(label), xlabel="client", ylabel="" if n % 3 else "class")
        whole_numbers(panel.xaxis, panel.yaxis)
        panel.grid(visible=False)
        rows += [(label, i, k, float(value)) for (i, k), value in np.ndenumerate(values_MK)]
    figure.colorbar(image, ax=axes, label="0: the client's least, 1: its largest", shrink=0.8)
    sentence = "Norms of head weights beside the class counts: a personal head looks like the first panel."
    return Drawing(
        figure,
        sentence + data.first(len(panels) - 1, MAX_SERIES),
        ("panel", "client", "class", "value"),
        rows,
    )
