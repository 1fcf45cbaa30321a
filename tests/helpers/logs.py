"""Logs and heartbeats made by hand, and what `hpcfl watch` shows of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcfl.config.loading import dump_config
from hpcfl.config.schema import Config
from hpcfl.log.heartbeat import Heartbeat
from hpcfl.log.schema import METRICS
from hpcfl.log.writer import LogWriter
from hpcfl.metrics.metric import ROUNDS_OF, STRING
from hpcfl.watch.render import rows
from hpcfl.watch.status import RunStatus

SIZES = {
    "client": 3,
    "class": 4,
    "feature": 2,
    "statistic": 3,
    "pair": 2,
    "party": 2,
    "uploader": 1,
    "iteration": 2,
    "test_sample": 5,
}
HEARTBEAT = Heartbeat(time=1e9, round=7, part="train", missing=(2, 4, 5, 6), since=1e9 - 30)


def new_log(path: Path, backup: Path | None = None) -> LogWriter:
    """Returns the writer of a log without rows."""
    fixed = {}
    for metric in METRICS:
        if metric.dims[0] not in ("round", *ROUNDS_OF):
            shape = tuple(SIZES[dim] for dim in metric.dims)
            fixed[metric.path] = np.full(shape, "net" if metric.dtype == STRING else 1, dtype=object)
    return LogWriter(path, METRICS, {"config": dump_config(Config()), "seed": 0}, SIZES, fixed, backup)


def row(t: int) -> dict[str, np.ndarray]:
    """Returns a round's row with the number of the round everywhere."""
    return {
        metric.path: np.full(tuple(SIZES[dim] for dim in metric.dims[1:]), t).astype(metric.dtype)
        for metric in METRICS
        if metric.dims[0] == "round"
    }


def add(log: LogWriter, accuracy: float = 0.5, **more: object) -> None:
    """Adds a row and writes it."""
    given = {f"/{name.replace('__', '/')}": value for name, value in more.items()}
    log.append(row(log.rounds_done) | {"/round/accuracy": accuracy} | given, {})
    log.write()


def words(status: RunStatus) -> str:
    """Returns all labels and texts that are shown of a run."""
    return "\n".join(f"{label} {text}" for label, text, _ in rows(status, Path("run.h5"), 60))
