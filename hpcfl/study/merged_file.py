"""The merged file of a study, study.h5: summaries of its cells, and means over seeds."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from hpcfl.errors import BadInput
from hpcfl.log.summary import COLUMNS
from hpcfl.runtime.lock import RunLock
from hpcfl.study.directory_owner import MERGED, check_directory_owner
from hpcfl.study.results import (
    Results,
    log_attributes,
    make_result,
    mean_and_std,
    read_if_valid,
    summary_table,
)
from hpcfl.study.run_store import RunStore
from hpcfl.study.study_file import Study
from hpcfl.utils.files import write_atomically
from hpcfl.utils.hdf5_create import hdf5_bytes


def write_results(study: Study, store: RunStore) -> Path:
    """Merges the cells' logs into one file and returns its path; jobs of one study take turns."""
    path = store.path / MERGED
    lock = RunLock(path)
    lock.acquire(timeout=60.0)
    try:
        check_directory_owner(study, store)
        cells = []
        for cell in study.cells:  # states are read under the lock: a cell may have ended meanwhile
            state = store.progress(cell).state
            # a bad cell has no log, or that of another run
            if state != "bad" and (run := read_if_valid(store.log(cell))):
                cells.append(make_result(run, log_attributes(study, cell), state))
        merged = hdf5_bytes(partial(_fill, study, Results(study.name, study.scale, tuple(cells))))
        try:
            write_atomically(path, merged)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from None
    finally:
        lock.release()
    return path


def _fill(study: Study, results: Results, file: h5py.File) -> None:
    """Writes /cell (one row per cell), /group (one per group of seeds) and /curve (by group and round)."""
    text = h5py.string_dtype()
    groups = list(results.groups.values())
    file.attrs.update(kind="study", study=results.name, scale=results.scale)
    file.attrs.update(about=study.about, file=study.text)
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
    curves = [mean_and_std(np.array([_pad(cell.accuracy, longest) for cell in cells])) for cells in groups]
    for index, statistic in enumerate(("mean", "std")):
        values = np.array([pair[index] for pair in spreads]).reshape(len(groups), len(COLUMNS))
        for column, name in enumerate(COLUMNS):
            file[f"/group/{name}_{statistic}"] = values[:, column]
        file[f"/curve/accuracy_{statistic}"] = np.array([pair[index] for pair in curves]).reshape(
            len(groups), longest
        )


def _pad(values: np.ndarray, length: int) -> np.ndarray:
    """Returns the values extended by NaN to a length."""
    return np.concatenate([values, np.full(length - len(values), np.nan)])
