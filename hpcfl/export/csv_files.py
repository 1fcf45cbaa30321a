"""A run as CSV files: numbers with all digits, so that reading them back is exact; missing ones as `nan`."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hpcfl.log.reader import Run
from hpcfl.log.tables import tables


def write(run: Run, directory: Path) -> Iterator[str]:
    """Writes the files of a run and yields their names."""
    attributes = ([name, _plain(value)] for name, value in sorted(run.attributes.items()))
    yield _write(directory, "run", ["attribute", "value"], attributes)
    for table in tables(run):
        yield _write(directory, table.name, table.columns(), table.rows(run))


def _write(directory: Path, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    with open(directory / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return f"{name}.csv"


def _plain(value: object) -> object:
    """Returns an attribute as a Python value instead of a numpy one."""
    return value.tolist() if hasattr(value, "tolist") else value
