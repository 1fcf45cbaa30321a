"""Where the time of a round goes."""

from __future__ import annotations

import numpy as np

from hpcfl.log.schema import ROUND_PARTS
from hpcfl.report.figures.drawing import MAX_PANELS, Drawing, FigureData, NoData, curve, shown
from hpcfl.report.figures.style import (
    COLOURS,
    HATCHES,
    add_legend,
    label_rows,
    label_text,
    new_figure,
    whole_numbers,
)
from hpcfl.report.figures.values import set_texts

PART_WORDS = {"comm": "communicate", "refine": "aggregate, refine"}


def parts_of_a_round(data: FigureData) -> Drawing:
    """Seconds of each part of a round, mean over seeds, as stacked bars: one bar per series."""
    setting = data.main
    rows: list[tuple[object, ...]] = []
    figure, [panel] = new_figure(1, height=max(1.4, 0.24 * len(setting.series) + 0.5))
    labels: list[str] = []
    for series in setting.series:
        records = [record for record in shown(series) if record.run.rounds_done]
        parts = (
            [curve(records, f"/round/seconds_{part}").mean() for part in ROUND_PARTS] if records else [np.nan]
        )
        if np.isnan(parts).all():
            continue
        left, gid = 0.0, data.styles[series.label]["gid"]
        for seconds, part, hatch, colour in zip(parts, ROUND_PARTS, HATCHES, COLOURS, strict=False):
            label = PART_WORDS.get(part, part) if not labels else None
            width = float(np.nan_to_num(seconds))
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "gid": gid}
            [bar] = panel.barh(len(labels), width, left=left, height=0.65, label=label, **look)
            set_texts(bar, [f"{series.label}, {PART_WORDS.get(part, part)}: {width:.3g} s"])
            left += width
        total = float(curve(records, "/round/seconds").mean())
        panel.annotate(f" {total:.3g} s", (left, len(labels)), va="center", fontsize=6.5, gid=gid)
        labels.append(series.label)
        rows.append((series.label, *map(float, parts), total))
    if not rows:
        raise NoData("no run has a finished round")
    panel.set(xlabel="seconds per round")
    label_rows(panel, labels, data.styles)
    panel.margins(x=0.15)
    panel.grid(visible=False, axis="y")
    add_legend(figure, [panel])
    sentence = (
        "Where the seconds of a round go, mean over rounds and seeds; measured on the machine that ran it."
    )
    return Drawing(figure, sentence + data.where(), ("method", *ROUND_PARTS, "round"), rows)


def parts_over_rounds(data: FigureData) -> Drawing:
    """Seconds of each part in every round of the first run of each series, as stacked areas."""
    chosen = [series for series in data.main.series if shown(series)[0].run.rounds_done > 1][:MAX_PANELS]
    if not chosen:
        raise NoData("no run has two rounds")
    figure, axes = new_figure(len(chosen), height=1.9)
    rows: list[tuple[object, ...]] = []
    for i, (panel, series) in enumerate(zip(axes, chosen, strict=True)):
        parts = np.array([curve(shown(series)[:1], f"/round/seconds_{part}")[0] for part in ROUND_PARTS])
        parts = np.nan_to_num(parts)
        rounds = np.arange(1, parts.shape[1] + 1)
        names = [PART_WORDS.get(part, part) for part in ROUND_PARTS]
        areas = panel.stackplot(rounds, parts, labels=names, colors=COLOURS[: len(parts)])
        for area, hatch in zip(areas, HATCHES, strict=False):
            area.set(hatch=hatch, edgecolor="white", linewidth=0)
        whole_numbers(panel.xaxis)
        bars = panel.bar(rounds, parts.sum(0), width=1, alpha=0)  # invisible, for their texts
        for t, bar in enumerate(bars):
            words = ", ".join(f"{n} {s:.3g}" for n, s in zip(names, parts[:, t], strict=True))
            set_texts(bar, [f"{series.label}, round {t + 1}, seconds: {words}"])
        panel.set_gid(data.styles[series.label]["gid"])
        panel.set(title=label_text(series.label), xlim=(1, len(rounds)), ylim=(0, None))
        if i % 3 == 0:
            panel.set_ylabel("seconds")
        if i >= len(chosen) - 3:
            panel.set_xlabel("round")
        rows += [(series.label, int(t), *map(float, parts[:, t - 1])) for t in rounds]
    add_legend(figure, axes)
    sentence = "Seconds of each part in every round of the first seed; look for parts that grow."
    return Drawing(figure, sentence + data.first(len(chosen)), ("method", "round", *ROUND_PARTS), rows)
