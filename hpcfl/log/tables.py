"""A log as tables, derived from the schema: one table for each set of index dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcfl.errors import BadInput
from hpcfl.log.reader import Run
from hpcfl.log.schema import COMPONENT_NAMES
from hpcfl.metrics.metric import ROUNDS_OF, Metric

if TYPE_CHECKING:
    import pandas

TABLE_NAMES = {
    ("round",): ("rounds", "round"),
    ("round", "client"): ("clients", "client"),
    ("round", "class"): ("classes", "prototypes"),
    ("client",): ("client_table", "clients"),
    ("client", "class"): ("client_classes", "clients"),
}
"""By dimensions: the name of the table, and the group whose name is left out of column names."""


@dataclass(frozen=True)
class Table:
    """A table: its index columns `keys`, counted from 0, and the datasets that are its other columns."""

    keys: tuple[str, ...]
    metrics: tuple[Metric, ...]

    @property
    def name(self) -> str:
        return TABLE_NAMES[self.keys][0] if self.keys in TABLE_NAMES else "_".join(self.keys)

    def columns(self) -> list[str]:
        """Returns the names of all columns, index columns first."""
        return [*self.keys, *(name for metric in self.metrics for name in self._names(metric))]

    def _names(self, metric: Metric) -> list[str]:
        """Returns the column names of a dataset, one for each component."""
        group, _, name = metric.path[1:].partition("/")
        omitted = TABLE_NAMES[self.keys][1] if self.keys in TABLE_NAMES else ""
        name = name if group == omitted else f"{group}_{name}"
        components = COMPONENT_NAMES.get(metric.dims[-1])
        return [name] if components is None else [f"{name}_{component}" for component in components]

    def rows(self, run: Run) -> Iterator[list[object]]:
        """Yields the rows as plain numbers, booleans and strings."""
        values = [run[metric.path] for metric in self.metrics]
        indices = list(np.ndindex(values[0].shape[1 : len(self.keys)]))
        for first in range(len(values[0])):
            columns = [np.asarray(value[first]).reshape(len(indices), -1).tolist() for value in values]
            for index, *cells in zip(indices, *columns, strict=True):
                yield [first, *index, *(number for cell in cells for number in cell)]


def frame(run: Run, name: str) -> pandas.DataFrame:
    """Returns a table as a pandas DataFrame."""
    for table in tables(run):
        if table.name == name:
            return pandas_module().DataFrame(list(table.rows(run)), columns=table.columns())
    raise BadInput(f"{name!r} is no table of a run: {', '.join(table.name for table in tables(run))}")


def pandas_module() -> Any:
    """Returns the module pandas; raises BadInput with the install command if it is missing."""
    try:
        import pandas
    except ImportError:
        raise BadInput("frames need a package that is not installed: pip install pandas") from None
    return pandas


def tables(run: Run) -> list[Table]:
    """Returns the tables of a log; those of some rounds only, such as prototypes, are in none."""
    entries_by_keys: dict[tuple[str, ...], list[Metric]] = {}
    for metric in run.metrics.values():
        if metric.dims[0] not in ROUNDS_OF:
            keys = tuple(dim for dim in metric.dims if dim not in COMPONENT_NAMES)
            entries_by_keys.setdefault(keys, []).append(metric)
    return [Table(keys, tuple(metrics)) for keys, metrics in entries_by_keys.items()]
