"""A user's own CSV file: a row per sample, numbers in columns, and a column with the label."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from hpcfl.data.sources.arrays import array_dataset
from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset
from hpcfl.errors import BadInput, nearest

LABELS = ("label", "class", "target", "y")
"""Columns that have the label where `--label` names none."""
WRITER = "writer"


def csv_file(files: SourceFiles, path: Path, label: str | None) -> RawDataset:
    """Opens a CSV file with a header: `label` names the column of labels, a column `writer` has writers."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            separator = max(",;\t", key=first.count)
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a CSV file ({error})") from None
    files.record(path)
    if len(rows) < 2:
        raise BadInput(f"{path} has no samples: it must have a header, and a row for each sample")
    header, rows = [name.strip() for name in rows[0]], rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise BadInput(f"{path}: row {number} has {len(row)} values, the header {len(header)}")
    labels = header.index(_label_column(path, header, label))
    writers = header.index(WRITER) if WRITER in header else labels
    columns = [at for at in range(len(header)) if at not in (labels, writers)]
    arrays = {"x": _numbers(path, header, rows, columns), "y": _words(rows, labels)}
    if writers != labels:
        arrays["writer"] = _words(rows, writers)
    return array_dataset(str(path), arrays)


def _label_column(path: Path, header: list[str], label: str | None) -> str:
    if label is None:
        known = [name for name in LABELS if name in header]
        if len(known) == 1:
            return known[0]
        raise BadInput(f"{path}: name the column of labels with --label; it has {_listed(header)}")
    if header.count(label) != 1:
        raise BadInput(
            f"--label {label}: {path} has {header.count(label) or 'no'} such column; "
            f"it has {_listed(header)}{nearest(label, header)}"
        )
    return label


def _listed(header: list[str]) -> str:
    """Returns the first and last columns, of which one often has the labels."""
    names = header if len(header) <= 8 else [*header[:4], "…", *header[-3:]]
    return ", ".join(names)


def _words(rows: list[list[str]], column: int) -> np.ndarray:
    """Returns a column as whole numbers if all are, else as words."""
    words = np.array([row[column].strip() for row in rows])
    try:
        return words.astype(np.int64)
    except (ValueError, OverflowError):
        return words


def _numbers(path: Path, header: list[str], rows: list[list[str]], columns: list[int]) -> np.ndarray:
    """Returns columns as float32 [N, F]; names the value that is none."""
    if not columns:
        raise BadInput(f"{path} has labels, but no further columns")
    x = np.empty((len(rows), len(columns)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for number, row in enumerate(rows):
            x[number] = [_number(row[at]) for at in columns]
    finite = np.isfinite(x)
    if not finite.all():
        number, column = np.argwhere(~finite)[0]
        at = columns[column]
        raise BadInput(
            f"{path}: row {number + 1} has {rows[number][at]!r} in column {header[at]}; "
            "it must be a number that is finite in float32"
        )
    return x


def _number(text: str) -> float:
    """Returns the number of a text, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
