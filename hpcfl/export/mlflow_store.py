"""Runs in a local store of MLflow: one database, which `mlflow ui` shows."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcfl.export.scalars import parameters, rounds, run_id, start_time
from hpcfl.log.reader import Run

FILE = "mlflow.db"
EXPERIMENT = "hpcfl"
BATCH = 1000
"""Most values that MLflow takes at once."""
STATES = {"running": "RUNNING", "finished": "FINISHED", "diverged": "FAILED", "stopped": "KILLED"}


def write(runs: Sequence[Run], directory: Path) -> Iterator[str]:
    """Writes all runs to one database, and yields its name; steps are rounds, counted from 1."""
    logging.getLogger("alembic").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=f"sqlite:///{directory / FILE}")
        experiment = client.create_experiment(EXPERIMENT, artifact_location="mlflow-artifacts")
    for run in runs:
        _write(client, experiment, run)
    yield FILE


def _write(client: Any, experiment: str, run: Run) -> None:
    from mlflow.entities import Metric, Param

    start = int(1000 * start_time(run))
    tags = {"hpcfl.run_id": run_id(run)} | ({"hpcfl.study": run.study} if run.study else {})
    tracked = client.create_run(experiment, start_time=start, tags=tags, run_name=run.path.stem).info.run_id
    given = [Param(key, str(value)) for key, value in parameters(run).items()]
    for first in range(0, len(given), 100):
        client.log_batch(tracked, params=given[first : first + 100])
    end, values = start, []
    for number, ended, each in rounds(run):
        end = int(1000 * ended)
        values += [Metric(name, value, end, number) for name, value in each.items()]
    for first in range(0, len(values), BATCH):
        client.log_batch(tracked, metrics=values[first : first + BATCH])
    client.set_terminated(tracked, STATES.get(run.status, "KILLED"), end)
