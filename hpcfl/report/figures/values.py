"""The values of a figure for the page: where its points, bars and cells are, and what they say."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

MAX_CELLS = 200_000
"""Larger heatmaps say nothing on the page; their values are in the CSV file."""
TICKS = ("_", "|")
"""Markers of deviations and seeds, which are not values of a line."""


def set_texts(artist: Artist, texts: Sequence[str]) -> None:
    """Sets what the page says at each point of a line or scatter plot, or at a bar."""
    vars(artist)["texts"] = list(texts)


def set_cells(image: AxesImage, values_YX: np.ndarray, x: str, y: str, name: str) -> None:
    """Sets the values of a heatmap, and the names of its axes and values."""
    vars(image)["cells"] = np.asarray(values_YX, dtype=np.float64), x, y, name


def figure_values(figure: Figure, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns groups of values with their places in the SVG file; `labels` names a series by its group."""
    groups = []
    for panel in figure.axes:
        hidden_by = panel.get_gid() or ""
        for artist in panel.get_children():
            for group in _groups(panel, artist, labels):
                groups.append({"series": str(artist.get_gid() or hidden_by), **group})
    return groups


def _groups(panel: Axes, artist: Artist, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    texts = vars(artist).get("texts")
    if isinstance(artist, AxesImage) and "cells" in vars(artist):
        yield from _cells(panel, artist)
    elif isinstance(artist, Rectangle) and texts:
        box = artist.get_window_extent()
        (x0, y0), (x1, y1) = _places(panel, np.array([(box.x0, box.y1), (box.x1, box.y0)]))
        yield {"name": "", "at": [[x0, y0, x1, y1, texts[0]]]}
    elif isinstance(artist, PathCollection) and texts:
        yield {"name": "", "at": _points(panel, np.asarray(artist.get_offsets(), dtype=float), texts)}
    elif isinstance(artist, Line2D) and artist.get_marker() not in TICKS:
        known = labels.get(str(artist.get_gid()), "")
        name = "" if texts else ", ".join(filter(None, (known, _titles(panel))))
        if texts or known:
            points = np.asarray(artist.get_xydata(), dtype=float)
            yield {"name": name, "at": _points(panel, points, texts or _line_texts(panel, artist))}


def _points(panel: Axes, points: np.ndarray, texts: Sequence[str]) -> list[list[Any]]:
    """Returns place and text of each point that is within its panel."""
    display = panel.transData.transform(points)
    low, high = panel.bbox.get_points() + np.array([[-1], [1]])
    with np.errstate(invalid="ignore"):
        inside = ((low <= display) & (display <= high)).all(1)
    chosen = [text for text, is_in in zip(texts, inside, strict=True) if is_in]
    return [[*place, text] for place, text in zip(_places(panel, display[inside]), chosen, strict=True)]


def _places(panel: Axes, display: np.ndarray) -> list[list[float]]:
    """Returns places on the screen as those of the SVG file: in points from the upper left corner."""
    figure = panel.get_figure(root=True)
    assert figure is not None
    height = figure.get_figheight() * 72
    places = display * 72 / figure.dpi
    return np.column_stack([places[:, 0], height - places[:, 1]]).round(1).tolist()


def _line_texts(panel: Axes, line: Line2D) -> list[str]:
    """Returns what a line says at its points: `round 3: 85.2 ± 1.1`."""
    spread = vars(line).get("spread")
    texts = []
    for n, (x, y) in enumerate(np.asarray(line.get_xydata(), dtype=float)):
        deviation = f" ± {spread[n]:.3g}" if spread is not None and spread[n] > 0 else ""
        texts.append(f"{panel.get_xlabel()} {_number(panel.xaxis, x)}: {_number(panel.yaxis, y)}{deviation}")
    return texts


def _titles(panel: Axes) -> str:
    """Returns the title of a panel and what its vertical axis shows."""
    siblings = [panel, *panel.get_shared_y_axes().get_siblings(panel)]
    name = next((each.get_ylabel() for each in siblings if each.get_ylabel()), "")
    return ", ".join(filter(None, (" ".join(panel.get_title().split()), name)))


def _number(axis: Axis, value: float) -> str:
    """Returns a value in the unit of its axis."""
    formatter = axis.get_major_formatter()
    if isinstance(formatter, FuncFormatter):
        return formatter(value)
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"


def _cells(panel: Axes, image: AxesImage) -> Iterator[dict[str, Any]]:
    """Yields the values of a heatmap as whole numbers of two bytes, times a step."""
    values_YX, x, y, name = vars(image)["cells"]
    if values_YX.size > MAX_CELLS:
        return
    left, right, bottom, top = image.get_extent()
    corners = panel.transData.transform([(left, top), (right, bottom)])
    step = float(np.nanmax(np.abs(values_YX), initial=0.0)) / 32767 or 1.0
    numbers = np.where(np.isnan(values_YX), -32768, np.nan_to_num(values_YX) / step).round()
    yield {
        "name": ", ".join(filter(None, (" ".join(panel.get_title().split()), name))),
        "box": [number for corner in _places(panel, corners) for number in corner],
        "shape": values_YX.shape,
        "axes": [x, y],
        "step": step,
        "cells": base64.b64encode(numbers.astype("<i2").tobytes()).decode(),
    }
