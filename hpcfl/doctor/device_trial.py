"""`hpcfl doctor --device`: short runs on the accelerator of this process, and what they say about it."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from hpcfl import __version__
from hpcfl.comm.serial import SerialCommunicator
from hpcfl.config.loading import load_config
from hpcfl.doctor.finding import Finding, ok, problem, summary, warning
from hpcfl.engine.progress import NoProgress
from hpcfl.engine.run import RunHooks, run_federation
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import Run, read_log
from hpcfl.models.costs import costs
from hpcfl.plan.forecast import CUDA_CONTEXT_BYTES, Forecast
from hpcfl.plan.machine import machine_like_here
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE, FAILED
from hpcfl.utils import accelerator
from hpcfl.utils.formatting import format_memory

METHODS = ("fedproto", "fedtgp", "lg-fedavg")
SHORT = ["federation.rounds=2", "federation.clients=4", "data.samples_per_class=100", "partition.alpha=1.0"]
TOLERANCE = 0.2
"""Accuracies of so short a run on the device and on the CPU may differ by so much."""


def try_device(settings: Sequence[str]) -> int:
    """Prints one line for each test, and returns the exit code."""
    findings = []
    device = set_up_torch(load_config(None, settings).runtime, 0)
    with tempfile.TemporaryDirectory(prefix="hpcfl-device-") as directory:
        for finding in _findings(device, settings, Path(directory)):
            print(finding.line(), flush=True)
            findings.append(finding)
    print(summary(findings))
    if device.type != "cpu":
        print("Please send these lines to the maintainers of hpcfl, also if all is well: see docs/gpu.md.")
    return FAILED if any(each.level == "problem" for each in findings) else DONE


def _findings(device: torch.device, settings: Sequence[str], directory: Path) -> Iterator[Finding]:
    versions = f"hpcfl {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    yield ok("versions", f"{versions}, {platform.platform()}")
    if device.type == "cpu":
        yield problem(
            "accelerator",
            "torch sees none",
            "install a torch for it, or ask the batch system for one; hpcfl doctor says more",
        )
        return
    kind, number = accelerator.find_accelerators(device.type)
    free = format_memory(accelerator.free_memory(device))
    has_float64, has_graphs = accelerator.has_float64(device), accelerator.has_graphs(kind)
    yield ok("accelerator", f"{accelerator.name(device)}: {number} × {kind}, {free} free")
    yield ok(
        "abilities",
        f"float64 {_yes(has_float64)}, graphs {_yes(has_graphs)}, deterministic algorithms to be asked for "
        f"{_yes(accelerator.has_deterministic_algorithms(kind))}",
    )
    for method in METHODS:
        yield _compare(method, settings, directory)
    if has_graphs:
        yield _with_graphs(settings, directory)
    yield _memory(device, plan_run(load_config(None, [*SHORT, *settings])))


def _compare(method: str, settings: Sequence[str], directory: Path) -> Finding:
    """Runs a method twice on the device and once on the CPU."""
    own = [f"method.name={method}", *settings]
    one, two = (_train(own, directory / f"{method}-{n}.h5") for n in (1, 2))
    on_cpu = _train([*own, "runtime.device=cpu"], directory / f"{method}-cpu.h5")
    if difference := compare_runs(one, two):
        return problem(method, f"two equal runs differ: {difference}", "tell the maintainers of hpcfl")
    apart = float(np.abs(_accuracy(one) - _accuracy(on_cpu)).max())
    detail = (
        f"two runs are equal bit for bit; accuracy {_accuracy(one)[-1]:.2%}, CPU {_accuracy(on_cpu)[-1]:.2%}"
    )
    if apart > TOLERANCE or not np.isfinite(apart):
        return warning(method, detail, "far from the CPU: tell the maintainers of hpcfl")
    return ok(method, detail)


def _with_graphs(settings: Sequence[str], directory: Path) -> Finding:
    """Compares a run that replays its steps with one that does not."""
    plain, replayed = (
        _train([*settings, f"runtime.graphs={on}"], directory / f"graphs-{on}.h5") for on in ("false", "true")
    )
    difference = compare_runs(plain, replayed)
    if difference is None:
        return ok("graphs", "the results with and without are equal bit for bit")
    return warning("graphs", f"with and without differ: {difference}", "leave runtime.graphs = false")


def _memory(device: torch.device, plan: RunPlan) -> Finding:
    """Compares the most bytes in use with what `hpcfl plan` says."""
    peak = accelerator.peak_memory(device)
    if peak is None:
        return ok("memory", "torch cannot say how much was in use")
    dims = (plan.architectures, plan.data.shape, *plan.dims)
    counted = costs(*dims, plan.config.train.batch_size, plan.config.runtime.inference_batch)
    machine = machine_like_here(1, 1, 1, None, None, None)
    said = Forecast(plan, counted, machine, (0, 0)).device_memory(0).total - CUDA_CONTEXT_BYTES
    detail = f"at most {format_memory(peak)} in use by tensors, hpcfl plan says {format_memory(said)}"
    return ok("memory", detail)


def _train(settings: Sequence[str], log: Path) -> Run:
    plan = plan_run(load_config(None, [*SHORT, "runtime.walltime_minutes=off", *settings]))
    hooks = RunHooks(make_display=NoProgress, may_exit=False)
    run_federation(SerialCommunicator(), plan, log, True, hooks)
    return read_log(log)


def _accuracy(run: Run) -> np.ndarray:
    return np.asarray(run["/round/accuracy"])


def _yes(able: bool) -> str:
    return "yes" if able else "no"
