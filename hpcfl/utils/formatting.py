"""Numbers as people read them, and where they are printed."""

from __future__ import annotations

import math
import os
import sys

from rich.console import Console


def console() -> Console:
    """Returns a console that is wide enough for tables where the output is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else int(columns) if columns.isdecimal() else 120
    return Console(highlight=False, markup=False, emoji=False, width=width)


def format_bytes(number: float) -> str:
    """Returns a number of bytes as people read it."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def format_duration(seconds: float) -> str:
    """Returns a length of time in its two largest units."""
    whole = round(min(seconds, 1e12))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def format_percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.2f}%"


def print_line(text: str) -> None:
    """Prints a line."""
    try:
        print(text, flush=True)
    except OSError:  # whoever read it is gone; the run goes on
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
