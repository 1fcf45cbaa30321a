"""Formats numbers for people, and prints text."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from hpcfl.errors import printable

MAX_RANGES = 12
"""How many ranges of ranks or clients are listed; others are only counted."""


class SafeConsole(Console):
    """A console whose texts, which may come from a file, cannot control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, keep="\n"), style, control)


def console() -> Console:
    """Returns a console; without a terminal it is 120 columns wide, or $COLUMNS."""
    columns = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() else int(columns) if columns.isdecimal() else 120
    return SafeConsole(highlight=False, markup=False, emoji=False, width=width)


def format_bytes(number: float) -> str:
    """Returns a number of bytes with a unit, as `1.5 MB`."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def format_memory(nbytes: float) -> str:
    """Returns a number of bytes of memory with a binary unit, as `1.5 GiB`."""
    for unit, digits in (("B", 0), ("KiB", 1), ("MiB", 1)):
        if nbytes < 1024:
            return f"{nbytes:.{digits}f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"


def format_flops(number: float) -> str:
    """Returns a number of floating-point operations with a unit, as `117.2 MFLOP`."""
    for unit in ("FLOP", "kFLOP", "MFLOP"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "FLOP" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.2f} GFLOP"


def plural(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Returns a duration in its two largest units, as `2 h 5 min`."""
    whole = round(min(seconds, 1e12))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def format_percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.2f}%"


def format_ranges(numbers: Iterable[int]) -> str:
    """Returns whole numbers as ranges: 1–4, 7 and 12 more."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [f"{a}" if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in spans[:MAX_RANGES]]
    left = sum(b - a + 1 for a, b in spans[MAX_RANGES:])
    return ", ".join(words) + (f" and {left} more" if left else "")


def print_line(text: str) -> None:
    """Prints a line that cannot control the terminal; without a reader, output is discarded from then on."""
    try:
        print(printable(text, keep="\n"), flush=True)
    except OSError:  # the reader has closed the pipe; the run continues
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
