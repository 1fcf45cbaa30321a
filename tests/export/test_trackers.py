"""`hpcfl export --to wandb | mlflow` with the real packages, offline; skipped where they are missing."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import Run, read_log
from hpcfl.metrics.metric import Metric
from tests.export.test_export import ROUNDS, make

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages themselves
NOWHERE = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9"
)
"""Whatever leaves this machine fails at once."""


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs the package {package}")


def export(*arguments: str) -> str:
    """Runs `hpcfl export` in a process of its own, without network, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "hpcfl", "export", *arguments],
        env={**os.environ, **NOWHERE, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def scalars(run: Run) -> dict[tuple[str, int], float]:
    """Returns the finite values of a log by metric and round, counted from 1."""

    def of(metric: Metric) -> Iterator[tuple[tuple[str, int], float]]:
        for t, value in enumerate(run[metric.path].tolist()):
            yield (metric.path[1:], t + 1), float(value)

    metrics = (metric for metric in run.metrics.values() if metric.dims == ("round",))
    return {key: value for metric in metrics for key, value in of(metric) if np.isfinite(value)}


def wandb_records(path: Path) -> list[bytes]:
    """Returns the records of an offline run: a log of LevelDB, in blocks of 32 KiB, behind 7 bytes."""
    data, at, records = path.read_bytes(), 7, [b""]
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        records[-1] += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its end
            records.append(b"")
    return records[:-1]


@needs("wandb")
def test_wandb_has_every_round_and_the_configuration(tmp_path, monkeypatch):
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.chdir(tmp_path)
    run = make(Path("run.h5"))
    printed = export("run.h5", "--to", "wandb")
    (path,) = Path("run-wandb").glob("offline-run-*/*.wandb")
    assert printed == f"run.h5: {path.parent.name}/{path.name} in run-wandb\n"
    assert sorted(each.name for each in Path().iterdir()) == ["run-wandb", "run.h5"]
    records = [Record.FromString(text) for text in wandb_records(path)]
    got: dict[tuple[str, int], float] = {}
    for record in records:
        if record.HasField("history"):
            items = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            step = items.get("_step", record.history.step.num)
            got |= {(name, step): value for name, value in items.items() if not name.startswith("_")}
    assert got == scalars(run)
    (started,) = [record.run for record in records if record.HasField("run")][:1]
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert (started.project, started.display_name) == ("hpcfl", "run")
    assert config["federation.clients"] == run.config.federation.clients
    assert config["status"] == "finished"


@needs("wandb")
def test_a_second_wandb_export_is_the_same_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(Path("run.h5"))
    export("run.h5", "--to", "wandb")
    first = sorted(Path("run-wandb").rglob("*"))
    export("run.h5", "--to", "wandb")
    assert sorted(Path("run-wandb").rglob("*")) == first


@needs("wandb")
def test_wandb_sync_finds_the_run(tmp_path, monkeypatch):
    """It passes over directories whose name does not say that they are yet to be sent."""
    monkeypatch.chdir(tmp_path)
    make(Path("run.h5"))
    export("run.h5", "--to", "wandb")
    (folder,) = Path("run-wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "sync", "--dry-run", str(folder)]
    done = subprocess.run(command, env={**os.environ, **NOWHERE}, capture_output=True, text=True, timeout=300)
    assert "Would sync 1 run(s)" in done.stdout + done.stderr


@needs("mlflow")
def test_mlflow_has_every_round_and_the_configuration_of_all_runs(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    runs = {name: make(Path(f"{name}.h5"), seed) for seed, name in enumerate(("one", "two"))}
    printed = export("one.h5", "two.h5", "--to", "mlflow", "-o", "store")
    assert printed == "2 runs: mlflow.db in store\n"
    assert sorted(path.name for path in Path("store").iterdir()) == ["hpcfl-mlflow.json", "mlflow.db"]
    client = MlflowClient(tracking_uri="sqlite:///store/mlflow.db")
    experiment = client.get_experiment_by_name("hpcfl")
    tracked = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    assert tracked.keys() == runs.keys()
    for name, run in runs.items():
        each = tracked[name]
        got = {
            (key, value.step): value.value
            for key in each.data.metrics
            for value in client.get_metric_history(each.info.run_id, key)
        }
        assert got == scalars(run)
        assert each.info.status == "FINISHED"
        assert each.data.params["federation.clients"] == str(run.config.federation.clients)
        assert max(step for _, step in got) == ROUNDS
        assert each.data.tags["hpcfl.run_id"] == str(read_log(Path(f"{name}.h5")).attributes["run_id"])[:16]
