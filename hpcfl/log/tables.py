"""A log as tables, straight from its schema: one for each set of dimensions that count something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcfl.errors import BadInput
from hpcfl.log.reader import Run
from hpcfl.log.schema import ENTRIES, NAMES, Entry

if TYPE_CHECKING:
    import pandas

KNOWN = {
    ("round",): ("rounds", "round"),
    ("round", "client"): ("clients", "client"),
    ("round", "class"): ("classes", "prototypes"),
    ("client",): ("client_table", "clients"),
    ("client", "class"): ("client_classes", "clients"),
}
"""The name of a table by its dimensions, and the group whose name its columns leave out."""


@dataclass(frozen=True)
class Table:
    """Rows by the places in `keys`, counted from 0, and the datasets that are its columns."""

    keys: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        return KNOWN[self.keys][0] if self.keys in KNOWN else "_".join(self.keys)

    def columns(self) -> list[str]:
        """Returns the names of all columns, those that count first."""
        return [*self.keys, *(name for entry in self.entries for name in self._names(entry))]

    def _names(self, entry: Entry) -> list[str]:
        group, _, name = entry.path[1:].partition("/")
        own = KNOWN[self.keys][1] if self.keys in KNOWN else ""
        name = name if group == own else f"{group}_{name}"
        return [f"{name}_{place}" for place in NAMES[entry.dims[-1]]] if entry.dims[-1] in NAMES else [name]

    def rows(self, run: Run) -> Iterator[list[object]]:
        """Yields the rows as plain numbers, booleans and strings."""
        values = [run[entry.path] for entry in self.entries]
        places = list(np.ndindex(values[0].shape[1 : len(self.keys)]))
        for first in range(len(values[0])):
            columns = [np.asarray(value[first]).reshape(len(places), -1).tolist() for value in values]
            for place, *cells in zip(places, *columns, strict=True):
                yield [first, *place, *(number for cell in cells for number in cell)]


def frame(run: Run, name: str) -> pandas.DataFrame:
    """Returns a table as a pandas frame."""
    for table in tables():
        if table.name == name:
            return pandas_module().DataFrame(list(table.rows(run)), columns=table.columns())
    raise BadInput(f"{name!r} is no table of a run: {', '.join(table.name for table in tables())}")


def pandas_module() -> Any:
    """Returns pandas, or raises the command that installs it."""
    try:
        import pandas
    except ImportError:
        raise BadInput("frames need a package that is not installed: pip install pandas") from None
    return pandas


def tables() -> list[Table]:
    """Returns the tables of a log; what is saved now and then, prototypes above all, stays in the log."""
    found: dict[tuple[str, ...], list[Entry]] = {}
    for entry in ENTRIES:
        if entry.dims[0] != "saved":
            found.setdefault(tuple(dim for dim in entry.dims if dim not in NAMES), []).append(entry)
    return [Table(keys, tuple(entries)) for keys, entries in found.items()]
