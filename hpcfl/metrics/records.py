"""The records in which ranks send their clients' values to rank 0, and their reduction there.

Record, message and reduction follow from the declared metrics alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hpcfl.metrics.metric import Metric, Phase

FLAGS: dict[Phase, str] = {"train": "trained", "evaluate": "evaluated"}
"""The field of a record that says whether the values of a phase were measured."""


def record_dtype(metrics: Iterable[Metric], sizes: Mapping[str, int]) -> np.dtype:
    """Returns the type of one client's record; `sizes` gives the length of each dimension."""
    fields: dict[str, tuple[Any, ...]] = {"client": ("<i4",)} | dict.fromkeys(FLAGS.values(), ("?",))
    for metric in metrics:
        if metric.value is not None:
            field = f"<{metric.dtype}", tuple(sizes[dim] for dim in metric.value_dims)
            if fields.setdefault(metric.value.name, field) != field:
                raise ValueError(
                    f"{metric.path}: the value {metric.value.name} is declared with another shape"
                )
    return np.dtype([(name, *field) for name, field in fields.items()])


class RankMetrics:
    """The values that this rank measures for its clients in a round; what is not measured is NaN or 0."""

    def __init__(self, metrics: Iterable[Metric], sizes: Mapping[str, int]):
        self.empty = np.zeros((), dtype=record_dtype(metrics, sizes))
        for name in self.empty.dtype.names or ():
            if self.empty.dtype[name].base.kind == "f":
                self.empty[name] = np.nan
        self.rows: dict[int, np.ndarray] = {}

    def of(self, client: int) -> np.ndarray:
        """Returns the record of a client, to be filled by `record[name] = value`."""
        if client not in self.rows:
            self.rows[client] = self.empty.copy()
            self.rows[client]["client"] = client
        return self.rows[client]

    def pop(self) -> np.ndarray:
        """Returns all records as bytes and begins the next round."""
        rows, self.rows = self.rows, {}
        records = np.array(list(rows.values()), dtype=self.empty.dtype)
        return np.frombuffer(bytearray(records.tobytes()), dtype=np.uint8)


class MetricsGatherer:
    """Puts the records of all ranks in client order, so that no sum depends on ranks, and reduces them."""

    def __init__(self, metrics: Iterable[Metric], sizes: Mapping[str, int], samples_M: np.ndarray):
        self.metrics = [metric for metric in metrics if metric.value is not None]
        self.dtype = record_dtype(self.metrics, sizes)
        self.samples_M = samples_M
        """Training samples of each client."""
        self.latest: dict[str, np.ndarray] = {}
        """Values of metrics that are logged by client from the last round in which they were measured."""
        for metric in self.metrics:
            assert metric.value is not None
            if metric.value.reduction == "latest":
                shape = len(samples_M), *(sizes[dim] for dim in metric.value_dims)
                self.latest[metric.value.name] = np.full(shape, np.nan)

    def decode(self, messages: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the records of all ranks, and the rank that each comes from."""
        by_rank = [np.frombuffer(message.tobytes(), dtype=self.dtype) for message in messages]
        rank_R = np.repeat(np.arange(len(by_rank)), [len(records) for records in by_rank])
        return np.concatenate(by_rank), rank_R

    def reduce(self, records: np.ndarray) -> dict[str, Any]:
        """Returns the row of all metrics that ranks measure, by path."""
        row = {}
        for metric in self.metrics:
            assert metric.value is not None
            name, reduction = metric.value.name, metric.value.reduction
            value_M = self.by_client(records, name, metric.value.phase)
            if reduction == "latest":
                known = self.latest[name]
                self.latest[name] = value_M = np.where(np.isnan(value_M), known, value_M)
            row[metric.path] = REDUCTIONS[reduction](value_M, self.samples_M)
        return row

    def by_client(self, records: np.ndarray, name: str, phase: Phase) -> np.ndarray:
        """Returns a value by client; NaN, 0 or False where it was not measured."""
        measured = records[records[FLAGS[phase]]]
        dtype = self.dtype[name]
        missing = np.nan if dtype.base.kind == "f" else 0
        value_M = np.full((len(self.samples_M), *dtype.shape), missing, dtype=dtype.base)
        value_M[measured["client"]] = measured[name]
        return value_M


def mean(values: np.ndarray) -> float:
    """Returns the mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _mean(value_M: np.ndarray, samples_M: np.ndarray) -> Any:
    flat = value_M.reshape(len(value_M), -1).T
    return np.array([mean(column_M) for column_M in flat]).reshape(value_M.shape[1:])


def _sample_mean(value_M: np.ndarray, samples_M: np.ndarray) -> float:
    known_M = np.isfinite(value_M)
    weight_M = samples_M[known_M]
    return float((value_M[known_M] * weight_M).sum() / weight_M.sum()) if known_M.any() else float("nan")


REDUCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "each": lambda value_M, samples_M: value_M,
    "latest": lambda value_M, samples_M: value_M.copy(),
    "mean": _mean,
    "sample mean": _sample_mean,
    "sum": lambda value_M, samples_M: value_M.sum(0),
    "max": lambda value_M, samples_M: np.fmax.reduce(value_M, axis=0),
}
