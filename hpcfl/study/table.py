"""`hpcfl show` of a study: means ± standard deviations over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
from rich.table import Table

from hpcfl.errors import BadInput
from hpcfl.log.reader import bad_input
from hpcfl.log.summary import COLUMNS, INFERENCES
from hpcfl.screen import kilobytes, many, percent
from hpcfl.show import console
from hpcfl.study.results import Result, numbers, open_study, spread
from hpcfl.study.shelf import tally


def is_study(name: str) -> bool:
    """Says whether this is a study's directory, or the merged file in it."""
    if (path := Path(name)).is_dir():
        return True
    try:
        with bad_input(path), h5py.File(path, "r", locking=False) as file:
            return str(file.attrs.get("kind")) == "study"
    except BadInput:
        return False


def print_study(path: str) -> None:
    """Prints one table per block of the study in a directory."""
    results = open_study(path)
    screen = console()
    states = tally(cell.status for cell in results)
    screen.print(f"{results.title}: {many(len(results.cells), 'cell')}, {states}")
    for block in dict.fromkeys(block for block, _ in results.groups):
        groups = {values: cells for (name, values), cells in results.groups.items() if name == block}
        screen.print()
        screen.print(_table(f"{results.title}, {block}", groups))


def _table(title: str, groups: dict[str, list[Result]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), title=title, title_justify="left")
    own = [json.loads(values) for values in groups]
    keys = list(dict.fromkeys(key for values in own for key in values))
    if len(own) > 1:  # what is the same in all of them need not be shown
        keys = [key for key in keys if len({repr(values.get(key)) for values in own}) > 1]
    for key in keys:
        table.add_column(key.rpartition(".")[2] if key != "method.name" else "method", overflow="fold")
    for heading in ("seeds", "accuracy", *INFERENCES, "up", "down", "s/round", "efficiency"):
        table.add_column(heading, justify="right", no_wrap=True)
    for values, cells in zip(own, groups.values(), strict=True):
        mean, std = (dict(zip(COLUMNS, each, strict=True)) for each in spread(numbers(cells)))
        table.add_row(
            *(str(values.get(key, "")) for key in keys),
            str(len(cells)),
            _share(mean["accuracy"], std["accuracy"]),
            *(percent(mean[name]) for name in INFERENCES),
            *(kilobytes(mean[name]) for name in ("bytes_up", "bytes_down")),
            *(f"{mean['seconds']:.3f}", f"{mean['efficiency']:.2f}"),
        )
    return table


def _share(mean: float, std: float) -> str:
    return percent(mean) if np.isnan(std) else f"{100 * mean:.2f} ± {100 * std:.2f}%"
