"""Writes a figure as SVG, PDF and PNG, and its data as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcfl.report.figures.drawing import Drawing
from hpcfl.report.table_formats import plain

METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "hpcfl"},
    "pdf": {"CreationDate": None, "Creator": "hpcfl"},
    "png": {"Software": "hpcfl"},
}
"""Without a date, so that the same logs give the same files."""
LAYOUTS = 3
"""Panels with a fixed shape find their place beside legends and labels only in the third layout."""


def write_figure(directory: Path, name: str, drawing: Drawing) -> Iterator[str]:
    """Writes the files of a figure into a directory and yields their names."""
    has_squares = any(panel.get_aspect() != "auto" for panel in drawing.figure.axes)
    for _ in range(LAYOUTS if has_squares else 1):
        drawing.figure.draw_without_rendering()
    drawing.figure.set_layout_engine("none")  # the layout is the same for all formats
    for suffix, metadata in METADATA.items():
        drawing.figure.savefig(directory / f"{name}.{suffix}", metadata=metadata)
        yield f"{name}.{suffix}"
    with open(directory / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(drawing.columns)
        writer.writerows([plain(v) if isinstance(v, str) else v for v in row] for row in drawing.rows)
    yield f"{name}.csv"
