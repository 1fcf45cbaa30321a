"""What a study found: one row per cell, and means with deviations over seeds, from its logs alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpcfl.config.identity import identity_but_for_seeds
from hpcfl.errors import BadInput
from hpcfl.log.reader import Run, as_bad_input, read_log, study_title
from hpcfl.log.summary import COLUMNS, NEEDS, Summary, summary
from hpcfl.log.tables import pandas_module
from hpcfl.runtime.lock import RunLock
from hpcfl.study.cells import Cell, seed_group
from hpcfl.study.run_store import RunStore
from hpcfl.study.study_file import Study
from hpcfl.utils.files import move_into_place, part_file

if TYPE_CHECKING:
    import pandas

MERGED = "study.h5"


def log_attributes(study: Study, cell: Cell) -> dict[str, str]:
    """Returns what a cell's log says of the study that it is part of."""
    return {
        "study": study.name,
        "scale": study.scale,
        "cell": cell.name,
        "block": cell.block,
        "values": json.dumps(dict(cell.values)),
    }


@dataclass(frozen=True, repr=False)
class Result:
    """A cell's log: what varies, and its summary."""

    path: Path
    name: str
    block: str
    values: Mapping[str, Any]
    status: str
    rounds: int
    run: str
    """What it has in common with runs that differ by seeds alone."""
    summary: Summary
    accuracy: np.ndarray
    """By round."""

    def __repr__(self) -> str:
        return (
            f"<cell {self.name}: {self.status}, {self.rounds} rounds, accuracy {self.summary.accuracy:.2%}>"
        )

    def open(self) -> Run:
        """Returns the whole log."""
        return read_log(self.path)


@dataclass(frozen=True, repr=False)
class Results:
    """A study's cells, and their groups over seeds."""

    name: str
    scale: str
    cells: tuple[Result, ...]

    @property
    def title(self) -> str:
        return study_title(self.name, self.scale)

    def __repr__(self) -> str:
        return f"<study {self.title}: {len(self.cells)} cells, {len(self.groups)} groups>"

    def __iter__(self) -> Iterator[Result]:
        return iter(self.cells)

    def __getitem__(self, name: str) -> Result:
        for cell in self.cells:
            if cell.name == name:
                return cell
        raise KeyError(name)

    @cached_property
    def groups(self) -> dict[tuple[str, str, str], list[Result]]:
        """Finished cells that differ by seeds alone, by block, values and whatever else their runs are."""
        found: dict[tuple[str, str, str], list[Result]] = {}
        for cell in self.cells:
            if cell.status == "finished":
                found.setdefault((*seed_group(cell.block, cell.values), cell.run), []).append(cell)
        return found

    def frame(self) -> pandas.DataFrame:
        """Returns one row per cell: its values and its summary."""
        return pandas_module().DataFrame([{"scale": self.scale} | row(cell) for cell in self.cells])

    def means(self) -> pandas.DataFrame:
        """Returns one row per group: its values, the number of seeds, and mean and std of every number."""
        rows = []
        for (block, values, _), cells in self.groups.items():
            mean, std = mean_and_std(summary_table(cells))
            pairs = zip(COLUMNS, mean, std, strict=True)
            figures = {f"{name}_{what}": v for name, m, s in pairs for what, v in (("mean", m), ("std", s))}
            own = {"scale": self.scale, "block": block, **json.loads(values)}
            rows.append(own | {"seeds": len(cells)} | figures)
        return pandas_module().DataFrame(rows)


def row(cell: Result) -> dict[str, Any]:
    known = {"cell": cell.name, "block": cell.block, **cell.values, "status": cell.status}
    return known | {"rounds": cell.rounds} | dict(zip(COLUMNS, astuple(cell.summary), strict=True))


def summary_table(cells: Sequence[Result]) -> np.ndarray:
    """Returns the summaries of cells, [cell × column]."""
    return np.array([astuple(cell.summary) for cell in cells], dtype=np.float64)


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and sample standard deviation over the first axis; one value alone has none (NaN)."""
    mean = values.mean(0)
    std = values.std(0, ddof=1) if len(values) > 1 else np.full_like(mean, np.nan)
    return mean, std


def read_results(path: str | Path) -> Results:
    """Returns the results in a study's directory, from the logs of its cells that can be read."""
    directory = Path(path)
    if directory.is_file():
        directory = directory.parent
    if not directory.is_dir():
        raise BadInput(f"cannot read {directory}: no such directory")
    runs = [run for log in directory.glob("*.h5") if (run := _readable(log)) and is_cell(run)]
    if not runs:
        raise BadInput(f"{directory} holds no cells of a study")
    names = {(str(run.attributes.get("study")), str(run.attributes.get("scale"))) for run in runs}
    if len(names) > 1:
        several = ", ".join(study_title(*each) for each in sorted(names))
        raise BadInput(f"{directory} holds cells of several studies or scales: {several}")
    cells = []
    for run in runs:
        with suppress(BadInput):
            cells.append(_result(run, run.attributes, run.status))
    return Results(*names.pop(), tuple(sorted(cells, key=_order)))


def is_cell(run: Run) -> bool:
    """Says whether a log is that of a cell, and not one that was kept aside."""
    return str(run.attributes.get("cell")) == run.path.name.removesuffix(".h5")


def _readable(log: Path) -> Run | None:
    """Returns a log that is there and whole."""
    try:
        return read_log(log, NEEDS)
    except BadInput:
        return None


def _result(run: Run, said: Mapping[str, Any], status: str) -> Result:
    """Returns a log as a result; `said` is what `belongs` returns of it."""
    with as_bad_input(run.path):
        values = dict(json.loads(said["values"]))
        return Result(
            *(run.path, str(said["cell"]), str(said["block"]), values, status, run.rounds_done),
            *(identity_but_for_seeds(run.config), summary(run), run["/round/accuracy"]),
        )


def _order(cell: Result) -> tuple[object, ...]:
    """Returns what cells are sorted by: numbers as numbers."""
    known = [value if isinstance(value, str | int | float) else repr(value) for value in cell.values.values()]
    return cell.block, *((isinstance(value, str), value) for value in known)


def check_directory_owner(study: Study, store: RunStore) -> None:
    """Raises if another study, or another scale of this one, was merged in this directory."""
    path = store.path / MERGED
    if not os.path.exists(path):
        return
    try:
        with as_bad_input(path), h5py.File(path, "r", locking=False) as file:
            there = study_title(str(file.attrs["study"]), str(file.attrs["scale"]))
    except BadInput:  # damaged: it is made anew from the logs
        return
    if there != study.title:
        raise BadInput(f"{store.path} is the directory of the study {there}; choose another --out")


def write_results(study: Study, store: RunStore) -> Path:
    """Merges the cells' logs into one file and returns its name; jobs of one study take turns."""
    path = store.path / MERGED
    lock = RunLock(path)
    lock.acquire(patience=60.0)
    try:
        cells = []
        for cell in study.cells:  # by this turn: a cell may have ended while another job merged
            state = store.progress(cell).state
            # a bad one has the log of another run, or none
            if state != "bad" and (run := _readable(store.log(cell))):
                cells.append(_result(run, log_attributes(study, cell), state))
        with part_file(path) as part:
            with h5py.File(part, "w") as file:
                _fill(file, Results(study.name, study.scale, tuple(cells)))
                file.attrs["about"], file.attrs["file"] = study.about, study.text
            move_into_place(part, path)
    finally:
        lock.release()
    return path


def _fill(file: h5py.File, results: Results) -> None:
    text = h5py.string_dtype()
    groups = list(results.groups.values())
    file.attrs.update(kind="study", study=results.name, scale=results.scale)
    for name in ("name", "block", "status"):
        file.create_dataset(f"/cell/{name}", data=[getattr(c, name) for c in results], dtype=text)
    file.create_dataset("/cell/values", data=[json.dumps(dict(c.values)) for c in results], dtype=text)
    file["/cell/rounds"] = np.array([cell.rounds for cell in results], dtype=np.int64)
    order = {cell.name: number for number, cells in enumerate(groups) for cell in cells}
    file["/cell/group"] = np.array([order.get(cell.name, -1) for cell in results], dtype=np.int64)
    table = summary_table(results.cells).reshape(len(results.cells), len(COLUMNS))
    for column, name in enumerate(COLUMNS):
        file[f"/cell/{name}"] = table[:, column]
    file.create_dataset("/group/block", data=[block for block, *_ in results.groups], dtype=text)
    file.create_dataset("/group/values", data=[values for _, values, _ in results.groups], dtype=text)
    file["/group/seeds"] = np.array([len(cells) for cells in groups], dtype=np.int64)
    spreads = [mean_and_std(summary_table(cells)) for cells in groups]
    longest = max((len(cell.accuracy) for cell in results), default=0)
    curves = [mean_and_std(np.array([_padded(cell.accuracy, longest) for cell in cells])) for cells in groups]
    for which, what in enumerate(("mean", "std")):
        values = np.array([both[which] for both in spreads]).reshape(len(groups), len(COLUMNS))
        for column, name in enumerate(COLUMNS):
            file[f"/group/{name}_{what}"] = values[:, column]
        file[f"/curve/accuracy_{what}"] = np.array([both[which] for both in curves]).reshape(
            len(groups), longest
        )


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    return np.concatenate([values, np.full(length - len(values), np.nan)])
