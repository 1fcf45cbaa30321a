"""How figures look: fonts, sizes, and colours with markers and line styles that can be told apart in grey."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from hpcfl.report.table_formats import one_line

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, safe for the colour-blind; without yellow, which is too light on white."""
HATCHES = ("", "////", "||||", "\\\\\\\\", "xxxx")
MARKERS = "osD^vPX*<>p"
LINES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 1, 1, 1, 1, 1)))
LOCAL_STYLE = {"color": "black", "linestyle": (0, (2, 1.5)), "marker": "x", "gid": "series-local"}
"""The baseline looks the same in all figures."""
WIDTH, PANEL = 7.0, 2.4
"""Width of a figure (two columns of a paper) and height of a row of panels, in inches."""
FEW_DECADES = 50
"""A logarithmic axis of less than this factor has labels at 1, 2 and 5, not at 1 alone."""
MAX_LABEL = 44
"""Longer labels are cut."""
RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "hpcfl",
    "text.usetex": False,
    "text.parse_math": False,
}
"""Names are shown as they are: a `$` in one is no formula."""


@contextmanager
def report_style() -> Iterator[None]:
    """Applies the style to all figures that are made and saved within it."""
    with (
        matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "agg", **RC}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield


def series_styles(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the look of each label, and the group by which a page hides it; `local` has its own."""
    styles: dict[str, dict[str, Any]] = {}
    for label in labels:
        i = sum(style is not LOCAL_STYLE for style in styles.values())
        styles[label] = (
            LOCAL_STYLE
            if label == "local"
            else {
                "color": COLOURS[i % len(COLOURS)],
                "linestyle": LINES[i % len(LINES)],
                "marker": MARKERS[i % len(MARKERS)],
                "gid": f"series-{i}",
            }
        )
    return styles


def label_text(label: str) -> str:
    """Returns a label for a figure: one line, not too long, and never hidden by a leading underscore."""
    text = one_line(label)
    text = text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
    return f" {text}" if text.startswith("_") else text


def draw_mean(
    panel: Axes, x: np.ndarray, mean: np.ndarray, spread: np.ndarray, label: str, style: dict[str, Any]
) -> None:
    """Draws the mean over seeds as a line with some markers, and mean ± spread as a band in its colour."""
    [line] = panel.plot(x, mean, label=label_text(label), markevery=max(1, len(x) // 8), **style)
    vars(line)["spread"] = spread
    look = {"color": style["color"], "gid": style["gid"], "alpha": 0.2, "linewidth": 0}
    panel.fill_between(x, mean - spread, mean + spread, **look)


def label_rows(panel: Axes, labels: Sequence[str], styles: Mapping[str, dict[str, Any]]) -> None:
    """Labels the rows of a chart of bars, from above to below."""
    panel.set_yticks(range(len(labels)), [label_text(label) for label in labels])
    for text, label in zip(panel.get_yticklabels(), labels, strict=True):
        text.set_gid(styles[label]["gid"])
    panel.set_ylim(len(labels) - 0.5, -0.5)


def plain_numbers() -> FuncFormatter:
    """Returns a formatter for logarithmic axes without formulas: 0.1, 1, 10, 1000."""
    return FuncFormatter(lambda value, _: f"{value:g}")


def whole_numbers(*axes: Axis) -> None:
    """Puts ticks at whole numbers only."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def title_text(title: str, columns: int = 3) -> str:
    """Returns a title for one of several panels side by side, in at most two lines."""
    width = {1: 70, 2: 44}.get(columns, 32)
    lines = textwrap.wrap(one_line(title), width)
    return "\n".join(lines if len(lines) <= 2 else [lines[0], f"{lines[1][: width - 1]}…"])


def new_figure(
    panels: int = 1, columns: int = 3, height: float = PANEL, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Returns a figure with a grid of panels; a single panel is as wide as a column of a paper and a half."""
    columns = min(panels, columns)
    rows = -(-panels // columns)
    width = {1: 5.0, 2: 6.4}.get(columns, WIDTH)
    figure = Figure(figsize=(width, (height + 0.7 if columns == 1 else height) * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    found = list(axes.flat)
    for empty in found[panels:]:
        empty.remove()
    return figure, found[:panels]


def logarithmic_y(panel: Axes) -> None:
    """Makes the vertical axis logarithmic; what is not positive is not drawn."""
    panel.set_yscale("log", nonpositive="mask")
    _label_log(panel.yaxis, panel.get_ylim())


def logarithmic_x(panel: Axes) -> None:
    """Makes the horizontal axis logarithmic."""
    panel.set_xscale("log")
    _label_log(panel.xaxis, panel.get_xlim())


def _label_log(axis: Axis, limits: tuple[float, float]) -> None:
    """Labels a logarithmic axis with plain numbers, because text is never read as formulas."""
    labelled = (1.0, 2.0, 5.0) if limits[1] < FEW_DECADES * limits[0] else (1.0,)
    axis.set_major_locator(LogLocator(subs=labelled, numticks=8))
    axis.set_major_formatter(plain_numbers())
    axis.set_minor_formatter(NullFormatter())


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Puts one legend for all panels above them; the figure grows by its rows."""
    entries: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        longest = max(map(len, entries))
        columns = max(1, min(len(entries), int(figure.get_figwidth() * 16) // (longest + 6)))
        figure.set_figheight(figure.get_figheight() + 0.16 * (-(-len(entries) // columns) - 1))
        figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=columns)
