"""Results of a study, read from its logs: one row per cell, and means and deviations over seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcfl.config.identity import identity_but_for_seeds
from hpcfl.errors import BadInput
from hpcfl.log.reader import NotALog, Run, as_bad_input, read_log, study_title
from hpcfl.log.summary import COLUMNS, SUMMARY_ROWS, Summary, summary
from hpcfl.log.tables import pandas_module
from hpcfl.study.cells import Cell, seed_group
from hpcfl.study.study_file import Study
from hpcfl.utils.formatting import plural

if TYPE_CHECKING:
    import pandas


def log_attributes(study: Study, cell: Cell) -> dict[str, str]:
    """Returns the attributes by which a cell's log names its study, block and values."""
    return {
        "study": study.name,
        "scale": study.scale,
        "cell": cell.name,
        "block": cell.block,
        "values": json.dumps(dict(cell.values)),
    }


@dataclass(frozen=True, repr=False)
class Result:
    """A cell that has a log: its values, its state, and the summary of the log."""

    path: Path
    name: str
    block: str
    values: Mapping[str, Any]
    status: str
    rounds: int
    identity: str
    """Identity of its configuration without seeds; equal for cells that are averaged."""
    summary: Summary
    accuracy: np.ndarray
    """Accuracy by round."""

    def __repr__(self) -> str:
        rounds = plural(self.rounds, "round")
        return f"<cell {self.name}: {self.status}, {rounds}, accuracy {self.summary.accuracy:.2%}>"

    def open(self) -> Run:
        """Returns the whole log."""
        return read_log(self.path)


@dataclass(frozen=True, repr=False)
class Results:
    """The cells of a study, and groups of cells that differ only in seeds."""

    name: str
    scale: str
    cells: tuple[Result, ...]
    unreadable: tuple[str, ...] = ()
    """A sentence for each log that cannot be read."""

    @property
    def title(self) -> str:
        return study_title(self.name, self.scale)

    def __repr__(self) -> str:
        return f"<study {self.title}: {plural(len(self.cells), 'cell')}, {plural(len(self.groups), 'group')}>"

    def __iter__(self) -> Iterator[Result]:
        return iter(self.cells)

    def __getitem__(self, name: str) -> Result:
        for cell in self.cells:
            if cell.name == name:
                return cell
        raise KeyError(name)

    @cached_property
    def groups(self) -> dict[tuple[str, str, str], list[Result]]:
        """Finished cells that differ only in seeds, by block, values and identity."""
        groups: dict[tuple[str, str, str], list[Result]] = {}
        for cell in self.cells:
            if cell.status == "finished":
                groups.setdefault((*seed_group(cell.block, cell.values), cell.identity), []).append(cell)
        return groups

    def frame(self) -> pandas.DataFrame:
        """Returns one row per cell: its values and its summary."""
        return pandas_module().DataFrame([{"scale": self.scale} | row(cell) for cell in self.cells])

    def means(self) -> pandas.DataFrame:
        """Returns one row per group: its values, the number of seeds, and mean and std of each column."""
        rows = []
        for (block, values, _), cells in self.groups.items():
            mean, std = mean_and_std(summary_table(cells))
            pairs = zip(COLUMNS, mean, std, strict=True)
            figures = {f"{name}_{what}": v for name, m, s in pairs for what, v in (("mean", m), ("std", s))}
            values_row = {"scale": self.scale, "block": block, **json.loads(values)}
            rows.append(values_row | {"seeds": len(cells)} | figures)
        return pandas_module().DataFrame(rows)


def row(cell: Result) -> dict[str, Any]:
    """Returns a cell as a row of a table: its name, values, status, rounds and summary."""
    columns = {"cell": cell.name, "block": cell.block, **cell.values, "status": cell.status}
    return columns | {"rounds": cell.rounds} | dict(zip(COLUMNS, astuple(cell.summary), strict=True))


def summary_table(cells: Sequence[Result]) -> np.ndarray:
    """Returns the summaries of cells, [cell × column]."""
    return np.array([astuple(cell.summary) for cell in cells], dtype=np.float64)


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and sample standard deviation over the first axis; NaN deviation of a single value."""
    mean = values.mean(0)
    std = values.std(0, ddof=1) if len(values) > 1 else np.full_like(mean, np.nan)
    return mean, std


def read_results(path: str | Path) -> Results:
    """Returns the results in a study's directory, from all logs of cells that can be read."""
    directory = Path(path)
    if directory.is_file():
        directory = directory.parent
    if not directory.is_dir():
        raise BadInput(f"cannot read {directory}: no such directory")
    runs, cells, unreadable = [], [], []
    for log in sorted(directory.glob("*.h5")):
        try:
            runs.append(read_log(log, SUMMARY_ROWS))
        except NotALog:
            pass
        except BadInput as error:
            unreadable.append(str(error))
    runs = [run for run in runs if is_cell(run)]
    if not runs:
        raise BadInput("; ".join([f"{directory} holds no cells of a study", *unreadable]))
    names = {(str(run.attributes.get("study")), str(run.attributes.get("scale"))) for run in runs}
    if len(names) > 1:
        titles = ", ".join(study_title(*each) for each in sorted(names))
        raise BadInput(f"{directory} holds cells of several studies or scales: {titles}")
    for run in runs:
        try:
            cells.append(make_result(run, run.attributes, run.status))
        except BadInput as error:
            unreadable.append(str(error))
    return Results(*names.pop(), tuple(sorted(cells, key=_sort_key)), tuple(unreadable))


def is_cell(run: Run) -> bool:
    """Returns whether a log belongs to a cell; logs kept under another name do not count."""
    return str(run.attributes.get("cell")) == run.path.name.removesuffix(".h5")


def read_if_valid(log: Path) -> Run | None:
    """Returns a log, or None if it cannot be read."""
    try:
        return read_log(log, SUMMARY_ROWS)
    except BadInput:
        return None


def make_result(run: Run, attributes: Mapping[str, Any], status: str) -> Result:
    """Returns a log as a result; `attributes` are those of `log_attributes`."""
    with as_bad_input(run.path):
        values = dict(json.loads(attributes["values"]))
        return Result(
            *(run.path, str(attributes["cell"]), str(attributes["block"]), values, status, run.rounds_done),
            *(identity_but_for_seeds(run.config), summary(run), run["/round/accuracy"]),
        )


def _sort_key(cell: Result) -> tuple[object, ...]:
    """Returns the key that sorts cells by block and values, numbers as numbers."""
    values = [
        value if isinstance(value, str | int | float) else repr(value) for value in cell.values.values()
    ]
    return cell.block, *((isinstance(value, str), value) for value in values)
