"""Logs as records for a report: what tables, verdict and curves need, without what is large."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.config.data import default_size
from hpcfl.config.identity import SEED_KEYS, settings
from hpcfl.errors import BadInput
from hpcfl.log.reader import Run, as_bad_input, is_study, read_log
from hpcfl.log.schema import BY_PATH
from hpcfl.log.summary import INFERENCES, SUMMARY_ROWS, Summary, summary
from hpcfl.study.results import read_results

SMALL_DIMS = {("round",), ("round", "statistic"), ("client",), ("client", "class")}
RECORD_ROWS = SUMMARY_ROWS | {
    path: slice(None) for path, metric in BY_PATH.items() if metric.dims in SMALL_DIMS
}
"""The datasets of a log that a record is made from."""
SIZE = "data.samples_per_class"
OF_PARTITION = {"alpha": "dirichlet", "classes_per_client": "pathological"} | dict.fromkeys(
    ("ways", "shots", "deviation", "unlabelled"), "nway_kshot"
)
"""Keys that have an effect in one partition alone."""


@dataclass(frozen=True, repr=False)
class RunRecord:
    """A run in a report: its log without datasets by round and client, and what was made from these."""

    run: Run
    summary: Summary
    accuracy: Mapping[str, np.ndarray]
    """Accuracy of each client after the last evaluated round, by inference; NaN: none."""
    infer: str
    """The inference that counts for its method."""
    block: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of a study's cell: its block, and what varies there."""

    @property
    def name(self) -> str:
        return self.run.path.name.removesuffix(".h5")

    @property
    def method(self) -> str:
        return self.run.config.method.name

    @property
    def seeds(self) -> tuple[int, int]:
        return self.run.config.seed, self.run.config.partition.seed

    @property
    def has_diverged(self) -> bool:
        return self.run.status == "diverged"

    def settings(self) -> dict[str, Any]:
        """Returns what distinguishes the run from others, but for its seeds."""
        used = settings(self.run.config)
        own = {key: value for key, value in self.values.items() if key not in SEED_KEYS and key not in used}
        return used | ({"block": self.block} if self.block else {}) | own

    @property
    def default_size(self) -> int | None:
        """The samples per class that its data have unless given; None: the data are those of a file."""
        return default_size(self.run.config.data, self.run.config.federation.clients)

    def has_effect(self, key: str) -> bool:
        """Returns whether a key of the partition is one of the partition that the run has."""
        section, _, word = key.rpartition(".")
        return section != "partition" or OF_PARTITION.get(word) in (None, self.run.config.partition.name)

    def read(self, *paths: str) -> Run:
        """Returns the log with whole datasets that the record does not hold."""
        return read_log(self.run.path, dict.fromkeys(paths, slice(None)))


def given_settings(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Returns the settings of runs, for each block without the size of its data unless one was given."""
    sizes = [record.run.config.data.samples_per_class for record in records]
    pairs = list(zip(records, sizes, strict=True))
    given = {record.block for record, size in pairs if record.default_size not in (None, size)}
    without = [record.default_size is None or record.block not in given for record in records]
    return [
        {key: value for key, value in record.settings().items() if key != SIZE or not is_left_out}
        for record, is_left_out in zip(records, without, strict=True)
    ]


@dataclass(frozen=True)
class Records:
    """The runs of a report, and a sentence for each log that was passed over."""

    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...] = ()
    study: str = ""
    """Title of the study that the runs are cells of; empty: single runs."""
    study_name: str = ""
    scale: str = ""


def read_records(paths: Sequence[str]) -> Records:
    """Returns the runs in files, or in the directory of a study; logs that cannot be read are passed over."""
    if any(Path(path).is_dir() for path in paths) and len(paths) > 1:
        raise BadInput("a report is about logs of runs, or about one directory of a study")
    runs: list[RunRecord] = []
    problems: list[str] = []
    study, name, scale = "", "", ""
    cells: list[tuple[Path, str, dict[str, Any]]] = [(Path(path), "", {}) for path in dict.fromkeys(paths)]
    if len(paths) == 1 and is_study(paths[0]):
        results = read_results(paths[0])
        study, name, scale = results.title, results.name, results.scale
        problems = list(results.unreadable)
        cells = [(cell.path, cell.block, dict(cell.values)) for cell in results]
    for path, block, values in cells:
        try:
            runs.append(make_record(read_log(path, RECORD_ROWS), block, values))
        except BadInput as error:
            problems.append(str(error))
    if not runs:
        raise BadInput("; ".join(problems))
    return Records(tuple(runs), tuple(problems), study, name, scale)


def make_record(run: Run, block: str = "", values: Mapping[str, Any] | None = None) -> RunRecord:
    """Returns the record of a log that was read with the rows that a record needs, or with all."""
    with as_bad_input(run.path):
        evaluated = np.flatnonzero(~np.isnan(run["/round/accuracy"]))
        accuracy = {
            name: run[f"/client/accuracy_{name}"][evaluated[-1]].copy()
            for name in INFERENCES
            if len(evaluated) and f"/client/accuracy_{name}" in run.datasets
        }
        kept = {
            path: values
            for path, values in run.datasets.items()
            if run.metrics[path].dims[:2] != ("round", "client")
        }
        slim = replace(run, datasets=kept, metrics={path: run.metrics[path] for path in kept})
        return RunRecord(slim, summary(run), accuracy, own_inference(run), block, values or {})


def own_inference(run: Run) -> str:
    """Returns the inference that counts for the run's method; a log without it counts by head."""
    found = re.search(r"\binfer (\w+)", str(run.attributes.get("method", "")))
    return found[1] if found and found[1] in INFERENCES else "head"
