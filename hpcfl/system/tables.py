"""CSV files on clients: the properties of their devices, and when they can be selected."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from hpcfl.errors import BadInput, nearest
from hpcfl.utils.hdf5_file import read_regular

Table = dict[str, dict[int, float]]
"""By column and client."""


def read_rows(
    key: str, file: str, columns: Sequence[str], needed: Collection[str]
) -> Iterator[dict[str, str]]:
    """Yields the rows of a CSV file by column; `key` names the file in errors."""
    where = f"{key} = {file!r}"
    try:
        text = read_regular(Path(file)).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8 text"
        raise BadInput(f"{where}: cannot read it: {reason}") from None
    try:
        reader = csv.DictReader(text.splitlines(), strict=True)
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        for name in names:
            if name not in columns:
                raise BadInput(f"{where}: unknown column {name!r}{nearest(name, columns)}")
            if names.count(name) > 1:
                raise BadInput(f"{where}: has the column {name!r} twice")
        if missing := [name for name in needed if name not in names]:
            raise BadInput(f"{where}: has no column {missing[0]!r}")
        for row in reader:
            if None in row or None in row.values():
                raise BadInput(f"{where}: line {reader.line_num} has not {len(names)} columns")
            yield {name: value.strip() for name, value in row.items()} | {"": str(reader.line_num)}
    except csv.Error as error:
        raise BadInput(f"{where}: line {reader.line_num}: {error}") from None


def read_properties(file: str, names: Sequence[str], clients: int) -> Table:
    """Returns the properties in a table of devices; an empty cell leaves what is drawn."""
    table: Table = {name: {} for name in names}
    seen: set[int] = set()
    for row in read_rows("system.table", file, ("client", *names), ["client"]):
        client = _integer("system.table", file, row, "client", 0, clients - 1)
        if client in seen:
            raise BadInput(f"system.table = {file!r}: client {client} is there twice")
        seen.add(client)
        for name in names:
            if row.get(name):
                table[name][client] = _property(file, row, name)
    return table


def read_trace(file: str, clients: int) -> list[tuple[int, int, int]]:
    """Returns client, first and last round (from 0) of each row of a trace."""
    columns = ("client", "first", "last")
    intervals = []
    for row in read_rows("system.trace", file, columns, columns):
        client = _integer("system.trace", file, row, "client", 0, clients - 1)
        first = _integer("system.trace", file, row, "first", 1)
        intervals.append((client, first - 1, _integer("system.trace", file, row, "last", first) - 1))
    return intervals


def available_in_trace(intervals: Sequence[tuple[int, int, int]], t: int, clients: int) -> np.ndarray:
    """Returns which clients can be selected in a round (from 0)."""
    available_M = np.zeros(clients, dtype=bool)
    available_M[[client for client, first, last in intervals if first <= t <= last]] = True
    return available_M


def _integer(key: str, file: str, row: dict[str, str], name: str, least: int, most: int = 10**9) -> int:
    text = row[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        allowed = f"must be a whole number from {least} to {most}"
        raise BadInput(f"{key} = {file!r}: line {row['']}: {name} = {text!r} {allowed}")
    return int(text)


def _property(file: str, row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = float("nan")
    most = 1.0 if name == "availability" else 1e30
    if not 0 <= value <= most or (value == 0 and name in ("speed", "up", "down")):
        raise BadInput(f"system.table = {file!r}: line {row['']}: {name} = {row[name]!r} is no such number")
    return value
