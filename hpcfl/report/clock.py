"""`hpcfl clock`: the virtual clock of a run that waited for all, computed after the fact from its log."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from rich.table import Table

from hpcfl.algorithms.build import build_algorithm
from hpcfl.config.loading import check_tables, dump_config, parse_setting
from hpcfl.config.schema import Config
from hpcfl.config.system import SystemConfig
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.reader import Run, read_log
from hpcfl.log.virtual_metrics import VIRTUAL_METRICS, device_values
from hpcfl.log.virtual_summary import describe_virtual, virtual_summary
from hpcfl.models.costs import costs
from hpcfl.plan.trained_networks import TrainedNetworks
from hpcfl.report.logged_bytes import LoggedBytes
from hpcfl.report.runs import describe_target, state_of
from hpcfl.system.clock import Clock
from hpcfl.system.events import Round, Status
from hpcfl.utils.files import move_into_place, temporary_path
from hpcfl.utils.formatting import console, format_percent, plural
from hpcfl.utils.hdf5_create import hdf5_bytes
from hpcfl.utils.hdf5_file import open_hdf5

CHANGES_RESULTS = ("deadline", "extra", "failure", "availability", "trace")
"""Keys of [system] with which other clients would have counted."""


def print_clock(
    path: str, profile: str | None, settings: Sequence[str], target: float | None, out: str | None
) -> None:
    """Prints the virtual clock of a run, and writes its log with it if asked to."""
    run = read_log(path)
    if out is not None and os.path.lexists(out):
        raise BadInput(f"cannot write {out}: it exists")
    timed, exact = with_clock(run, profile, settings)
    found = virtual_summary(timed)
    if found is None:
        raise BadInput(f"{path} has no round yet")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row(
        "run", f"{path}: {run.config.method.name}, {state_of(run)}, {plural(run.rounds_done, 'round')}"
    )
    table.add_row("devices", _describe_devices(timed))
    for label, text in zip(("virtual", ""), describe_virtual(found), strict=True):
        table.add_row(label, text)
    table.add_row("slowest", _describe_slowest(timed))
    if target is not None:
        table.add_row(f"to {format_percent(target)}", describe_target(timed, target))
    words = (
        "by client, exact" if exact else "by client not exact: what the log has of all clients is shared out"
    )
    table.add_row("bytes", words)
    if out is not None:
        _write(run.path, timed, Path(out))
        table.add_row("log", out)
    console().print(table)


def with_clock(run: Run, profile: str | None, settings: Sequence[str]) -> tuple[Run, bool]:
    """Returns a log with the virtual clock of these devices, and whether its bytes by client are exact."""
    _check_waits(run.config.system, f"{run.path} did not wait for all")
    if run.config.system.profile != "off" and (run["/virtual/status"] == Status.UNAVAILABLE).any():
        raise BadInput(f"{run.path}: clients were not available in some rounds")
    config = _new_config(run.config, profile, settings)
    _check_waits(config.system, "hpcfl clock is for rounds that wait for all; train a run")
    plan = plan_run(config)
    for what, checksum in plan.checksums.items():
        if not what.startswith("system_") and run.attributes.get(f"checksum_{what}") != checksum:
            raise BadInput(f"{run.path} is a run with other content of the same name ({what})")
    rows, exact = _rows(run, plan)
    assert plan.system is not None
    if (plan.system.devices.availability_M < 1).any():
        raise BadInput("system.table has clients that are not always available: train a run")
    values = {path: np.array([row[path] for row in rows]) for path in (rows[0] if rows else {})}
    values |= device_values(plan.system.devices)
    datasets = run.datasets | {
        metric.path: values[metric.path].astype(metric.dtype)
        for metric in VIRTUAL_METRICS
        if metric.path in values
    }
    metrics = run.metrics | {metric.path: metric for metric in VIRTUAL_METRICS}
    lacking = run.lacking - datasets.keys()
    return replace(run, config=config, datasets=datasets, metrics=metrics, lacking=lacking), exact


def _check_waits(system: SystemConfig, problem: str) -> None:
    for name in CHANGES_RESULTS:
        value = getattr(system, name)
        if value != SystemConfig.model_fields[name].default:
            raise BadInput(f"system.{name} = {value!r}: {problem}")


def _new_config(config: Config, profile: str | None, settings: Sequence[str]) -> Config:
    """Returns the configuration with other devices."""
    tables: dict[str, Any] = tomllib.loads(dump_config(config))
    tables["system"] = {} if profile is None else {"profile": profile}
    for text in settings:
        key, value = parse_setting(text)
        section, _, name = key.partition(".")
        if section != "system" and key != "data.root":
            raise BadInput(f"--set {text}: only keys of [system], and data.root")
        tables[section][name] = value
    found = check_tables(tables)
    if found.system.profile == "off":
        raise BadInput(
            "hpcfl clock needs devices: --profile phones, hospitals or lan, or --set system.speed=…"
        )
    return found


def _rows(run: Run, plan: RunPlan) -> tuple[list[dict[str, Any]], bool]:
    """Returns the clock's values of every round."""
    assert plan.system is not None
    algorithm = build_algorithm(plan, torch.device("cpu"))
    batches = plan.config.train.batch_size, plan.config.runtime.inference_batch
    own = costs(plan.architectures, plan.data.shape, *plan.dims, *batches, plan.data.input_type)
    trained = TrainedNetworks(plan, algorithm, own)
    flops_M = [trained.flops(client.id) for client in plan.clients]
    clock, logged = Clock(plan.system, plan.config.federation.per_round), LoggedBytes(run, algorithm)
    never_M, rows = np.zeros(len(plan.clients), dtype=bool), []
    before_M, once_M = never_M, np.zeros(len(plan.clients), dtype=np.int64)
    for t in range(run.rounds_done):
        selected_M, diverged_M = run["/round/participants"][t], run["/client/diverged"][t]
        idle_M, gone_M = (never_M, never_M) if algorithm.recovers else (before_M, diverged_M)
        receivers = {"participants": selected_M & ~idle_M, "all": ~idle_M, "once": ~diverged_M}
        sends_M = selected_M & ~idle_M & ~diverged_M
        down_M, up_M = logged.of_round(t, sends_M, receivers[algorithm.receivers])
        if (
            algorithm.receivers == "once"
        ):  # counted in the round that made it, travels at the start of the next
            down_M, once_M = once_M, down_M
        work_M = [algorithm.samples_passed(t, i) * flops for i, flops in enumerate(flops_M)]
        flops = np.array(work_M, dtype=np.float64)
        failure_M = np.full(len(never_M), np.nan)
        round_ = Round(selected_M, idle_M, diverged_M, failure_M, down_M, flops, up_M)
        rows.append(dict(clock.close(t, round_, gone_M).values))
        before_M = diverged_M
    return rows, logged.exact


def _describe_devices(run: Run) -> str:
    def span(name: str, unit: str) -> str:
        low, high = run[f"/virtual/{name}"].min(), run[f"/virtual/{name}"].max()
        return f"{low:.3g} {unit}" if low == high else f"{low:.3g} to {high:.3g} {unit}"

    links = f"up {span('up', 'Mbit/s')}, down {span('down', 'Mbit/s')}"
    speed, latency = span("speed", "GFLOP/s"), span("latency", "s")
    return f"{run.config.system.profile}: {speed}, {links}, latency {latency}"


def _describe_slowest(run: Run) -> str:
    """Returns the mean parts of the clients that end each round."""
    ends = [int(np.nanargmax(row)) for row in run["/virtual/client_seconds"] if not np.isnan(row).all()]
    if not ends:
        return "nobody worked"
    parts = {
        name: np.mean([run[f"/virtual/seconds_{name}"][t, i] for t, i in enumerate(ends)])
        for name in ("latency", "down", "compute", "up")
    }
    return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts.items()) + ": means over rounds"


def _write(source: Path, run: Run, out: Path) -> None:
    """Writes the log in a file with the clock of a run."""

    def fill(file: h5py.File) -> None:
        with open_hdf5(source) as old:
            for group in old:
                if group != "virtual":
                    old.copy(group, file)
            file.attrs.update(old.attrs)
        for metric in VIRTUAL_METRICS:
            dataset = file.create_dataset(metric.path, data=run[metric.path])
            dataset.attrs.update(kind=metric.kind, dims=" ".join(metric.dims), about=metric.about)
        file.attrs["config"] = dump_config(run.config)
        file.attrs["datasets"] = sum(len(group) for group in file.values())

    try:
        image = hdf5_bytes(fill)
        with temporary_path(out) as temporary:
            temporary.write_bytes(image)
            move_into_place(temporary, out)
    except OSError as error:
        raise BadInput(f"cannot write {out}: {error.strerror}") from None
