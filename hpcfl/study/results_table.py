"""`hpcfl show` of a study: a table of means ± standard deviations over seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from hpcfl.log.reader import SMALL_SCALE_NOTE
from hpcfl.log.summary import COLUMNS, INFERENCES
from hpcfl.study.results import Result, mean_and_std, read_results, summary_table
from hpcfl.study.run_store import count_states
from hpcfl.utils.formatting import console, format_bytes, format_percent, plural

HEADINGS = ("seeds", "accuracy", "rounds", "selected", *INFERENCES, "up", "down", "s/round", "efficiency")
FILE_WIDTH = 10_000
"""Width of the table in characters if the output is not a terminal."""


def print_study(path: str) -> None:
    """Prints one table per block of the study in a directory."""
    results = read_results(path)
    screen = console()
    screen.print(
        f"{results.title}: {plural(len(results.cells), 'log')}, {count_states(c.status for c in results)}"
    )
    if results.scale == "small":
        screen.print(SMALL_SCALE_NOTE)
    for problem in results.unreadable:
        screen.print(problem)
    for cell in results:
        if cell.status == "diverged":
            screen.print(f"diverged in round {cell.rounds}: {cell.name}")
    for block in dict.fromkeys(block for block, *_ in results.groups):
        groups = [(json.loads(key[1]), cells) for key, cells in results.groups.items() if key[0] == block]
        screen.print()
        screen.print(f"{results.title}, {block}")
        screen.print(_table(groups, screen.width if screen.is_terminal else FILE_WIDTH), crop=False)


def _table(groups: Sequence[tuple[dict[str, Any], list[Result]]], width: int) -> Table:
    """Returns a row per group; last columns that do not fit are left out."""
    group_values = [values for values, _ in groups]
    keys = list(dict.fromkeys(key for values in group_values for key in values))
    if len(group_values) > 1:  # keys with the same value in all groups are not shown
        keys = [key for key in keys if len({repr(values.get(key)) for values in group_values}) > 1]
    columns = [[_heading(key), *(str(values.get(key, "–")) for values in group_values)] for key in keys]
    for column in zip(HEADINGS, *(_statistics(cells) for _, cells in groups), strict=True):
        if column[0] not in ("selected", *INFERENCES) or set(column[1:]) != {"–"}:
            columns.append([*column])
    widths = np.cumsum([1 + max(map(len, column)) for column in columns])
    shown = max(len(keys) + 2, int((widths <= width + 1).sum()))  # seeds and accuracy always
    table = Table(box=None, padding=(0, 1, 0, 0), width=int(widths[shown - 1]))
    for i, (heading, *_) in enumerate(columns[:shown]):
        table.add_column(heading, justify="left" if i < len(keys) else "right", no_wrap=True)
    for cells in list(zip(*columns[:shown], strict=True))[1:]:
        table.add_row(*cells)
    return table


def _heading(key: str) -> str:
    section, _, word = key.rpartition(".")
    return section if word == "name" else word


def _statistics(cells: list[Result]) -> list[str]:
    """Returns the cells of a row under HEADINGS."""
    mean, std = (dict(zip(COLUMNS, columns, strict=True)) for columns in mean_and_std(summary_table(cells)))
    rounds = sorted({cell.rounds for cell in cells})
    return [
        str(len(cells)),
        _mean_with_std(mean["accuracy"], std["accuracy"]),
        "/".join(map(str, rounds)),
        _mean_with_std(mean["selected"], std["selected"]),
        *(format_percent(mean[name]) for name in INFERENCES),
        *(format_bytes(mean[name]) for name in ("bytes_up", "bytes_down")),
        *(f"{mean['seconds']:.3f}", f"{mean['efficiency']:.2f}"),
    ]


def _mean_with_std(mean: float, std: float) -> str:
    return format_percent(mean) if np.isnan(std) else f"{100 * mean:.2f} ± {100 * std:.2f}%"
