"""Figures of `hpcfl bench peers`: one row for each simulator, ratios to hpcfl first."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.table import Table

from hpcfl.bench.peers.measurement import Measurement
from hpcfl.bench.peers.workloads import Prepared
from hpcfl.utils.formatting import console, plural

HPCFL = "hpcfl"
RATIOS = ("seconds", "CPU seconds", "start-up", "memory", "lines")
FIGURES = ("s/round", "CPU s/round", "clients/s", "start-up s", "memory MiB", "lines")
TICK = 0.001
"""Least CPU seconds that a ratio is made of."""


@dataclass
class Row:
    """A simulator's measurements of a workload, one for each repeat."""

    name: str
    lines: int
    """Of code that a user writes."""
    versions: str = ""
    repeats: list[Measurement] = field(default_factory=list)
    problem: str = ""

    def add(self, measurement: Measurement) -> None:
        self.repeats.append(measurement)
        self.problem = measurement.problem


def print_table(prepared: Prepared, rows: Mapping[str, Row], ranks: int, own: Row) -> None:
    """Prints medians over repeats, with the least and the most; first ratios to `own`."""
    workload, screen = prepared.workload, console()
    load = "/".join(f"{each:.1f}" for each in os.getloadavg())
    lasts = f"{plural(workload.rounds, 'round')}, {plural(len(own.repeats), 'repeat')}"
    screen.print(
        f"{workload.says}; here {workload.participants} of {workload.clients} clients, "
        f"batch {workload.batch_size}, 1 epoch, {prepared.dataset}; {lasts}; "
        f"hpcfl on {ranks} ranks, the others with {plural(ranks - 1, 'worker')} or threads; load {load}"
    )
    compared, absolute = _table(f"÷ {own.name}", RATIOS), _table("itself", FIGURES)
    for row in rows.values():
        if row.problem:
            compared.add_row(row.name, "failed")
        else:
            compared.add_row(row.name, *ratios(row, own))
            absolute.add_row(row.name, *figures(row, workload.participants))
    for table in (compared, absolute):
        screen.print(table)
    screen.print("; ".join(row.versions for row in rows.values() if row.versions))
    for row in rows.values():
        if row.problem:
            screen.print(f"{row.name}: {row.problem}")


def _table(first: str, heads: Sequence[str]) -> Table:
    table = Table(first, box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right")
    return table


def ratios(row: Row, own: Row) -> list[str]:
    """Returns a simulator's figures ÷ hpcfl's."""
    if row is own:
        return ["1"] * len(RATIOS)
    if own.problem:
        return ["–"] * len(RATIOS)
    pairs = list(zip(row.repeats, own.repeats, strict=True))
    seconds = [each.round_seconds / ours.round_seconds for each, ours in pairs]
    start = [each.start_seconds / ours.start_seconds for each, ours in pairs]
    memory = [each.peak_bytes / ours.peak_bytes for each, ours in pairs]
    cpu = [each.cpu_seconds / max(ours.cpu_seconds, TICK) for each, ours in pairs]
    return [*map(spread, (seconds, cpu, start, memory)), f"{row.lines / own.lines:.1f}"]


def figures(row: Row, participants: int) -> list[str]:
    """Returns a simulator's own figures."""
    seconds = [each.round_seconds for each in row.repeats]
    return [
        spread(seconds, 3),
        spread([each.cpu_seconds for each in row.repeats], 3),
        spread([participants / each for each in seconds], 1),
        spread([each.start_seconds for each in row.repeats], 1),
        spread([each.peak_bytes / 2**20 for each in row.repeats], 0),
        str(row.lines),
    ]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Returns the median, with the least and the most."""
    least, middle, most = (f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))
    return middle if least == most else f"{middle} ({least}–{most})"


def count_lines(path: Path) -> int:
    """Returns the lines of a program or a configuration without empty ones, comments and docstrings."""
    text = path.read_text()
    docstrings = _docstring_lines(text) if path.suffix == ".py" else set()
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in docstrings
        for number, line in enumerate(text.splitlines(), start=1)
    )


def _docstring_lines(text: str) -> set[int]:
    """Returns the numbers of the lines of strings that stand alone."""
    return {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
