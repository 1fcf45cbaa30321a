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
from hpcfl.config.schema import RuntimeConfig
from hpcfl.doctor.finding import Finding, ok, problem, summary, warning
from hpcfl.engine.progress import NoProgress
from hpcfl.engine.run import RunHooks, run_federation
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import Run, read_log
from hpcfl.models.costs import costs
from hpcfl.plan.device_memory import CUDA_CONTEXT_BYTES, gpu_memory
from hpcfl.plan.forecast import Forecast
from hpcfl.plan.machine import machine_like_here
from hpcfl.runtime.devices import device_for, free_memory, set_up_torch
from hpcfl.runtime.exit_handling import DONE, FAILED
from hpcfl.utils import accelerator
from hpcfl.utils.formatting import format_memory

METHODS = ("fedproto", "fedtgp", "lg-fedavg")
SHORT = ["federation.rounds=2", "federation.clients=4", "data.samples_per_class=100", "partition.alpha=1.0"]
TOLERANCE = 0.2
"""Accuracies of so short a run on the device and on the CPU may differ by so much."""
MARGIN, LIBRARY_BYTES = 1.25, 64 * 2**20
"""A run may use so many times what is planned, and so many bytes more: cuBLAS alone takes 32 MiB here."""


def try_device(settings: Sequence[str]) -> int:
    """Prints one line for each test, and returns the exit code."""
    findings = []
    runtime = load_config(None, settings).runtime
    kind = device_for(runtime.device, 0, *accelerator.find_accelerators(runtime.device))
    with tempfile.TemporaryDirectory(prefix="hpcfl-device-") as directory:
        for finding in _findings(runtime, settings, Path(directory)):
            print(finding.line(), flush=True)
            findings.append(finding)
    print(summary(findings))
    if kind != "cpu":
        print("Please send these lines to the maintainers of hpcfl, also if all is well: see docs/gpu.md.")
    return FAILED if any(each.level == "problem" for each in findings) else DONE


def _findings(runtime: RuntimeConfig, settings: Sequence[str], directory: Path) -> Iterator[Finding]:
    versions = f"hpcfl {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    yield ok("versions", f"{versions}, {platform.platform()}")
    devices: list[torch.device] = []
    yield from _guarded("accelerator", _describe(runtime, devices))
    if not devices:
        return
    for method in METHODS:
        yield from _guarded(method, _try_method(method, devices[0], settings, directory))
    if accelerator.has_graphs(devices[0].type):
        yield from _guarded("graphs", _with_graphs(settings, directory))


def _guarded(name: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yields the findings of a part; an error in it is one of them, and the next part is tried."""
    try:
        yield from findings
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")  # below it torch has advice about CUDA
        yield problem(name, f"{type(error).__name__}: {reason}", "tell the maintainers of hpcfl")


def _describe(runtime: RuntimeConfig, devices: list[torch.device]) -> Iterator[Finding]:
    """Says what the accelerator of this process is and can do, and appends it to the list if there is one."""
    device = set_up_torch(runtime, 0)
    if device.type == "cpu":
        yield problem(
            "accelerator",
            "torch sees none",
            "install a torch for it, or ask the batch system for one; hpcfl doctor says more",
        )
        return
    devices.append(device)
    kind, number = accelerator.find_accelerators(device.type)
    free = format_memory(accelerator.free_memory(device))
    has_float64, has_graphs = accelerator.has_float64(device), accelerator.has_graphs(kind)
    yield ok("accelerator", f"{accelerator.name(device)}: {number} × {kind}, {free} free")
    yield ok(
        "abilities",
        f"float64 {_yes(has_float64)}, graphs {_yes(has_graphs)}, deterministic algorithms to be asked for "
        f"{_yes(accelerator.has_deterministic_algorithms(kind))}",
    )


def _try_method(
    method: str, device: torch.device, settings: Sequence[str], directory: Path
) -> Iterator[Finding]:
    """Runs a method twice on the device and once on the CPU."""
    own = [f"method.name={method}", *settings]
    free_memory()  # of the part before
    accelerator.reset_peak_memory(device)
    one = _train(own, directory / f"{method}-1.h5")
    peak = accelerator.peak_memory(device)
    two = _train(own, directory / f"{method}-2.h5")
    on_cpu = _train([*own, "runtime.device=cpu", "runtime.graphs=false"], directory / f"{method}-cpu.h5")
    yield _compare(method, one, two, on_cpu)
    yield _memory(peak, _plan(own))


def _compare(method: str, one: Run, two: Run, on_cpu: Run) -> Finding:
    """Compares two runs on the device bit for bit, and roughly with one on the CPU."""
    if difference := compare_runs(one, two):
        return problem(method, f"two equal runs differ: {difference}", "tell the maintainers of hpcfl")
    apart = float(np.abs(_accuracy(one) - _accuracy(on_cpu)).max())
    detail = (
        f"two runs are equal bit for bit; accuracy {_accuracy(one)[-1]:.2%}, CPU {_accuracy(on_cpu)[-1]:.2%}"
    )
    if apart > TOLERANCE or not np.isfinite(apart):
        return warning(method, detail, "far from the CPU: tell the maintainers of hpcfl")
    return ok(method, detail)


def _with_graphs(settings: Sequence[str], directory: Path) -> Iterator[Finding]:
    """Compares a run that replays its steps with one that does not."""
    plain, replayed = (
        _train([*settings, f"runtime.graphs={on}"], directory / f"graphs-{on}.h5") for on in ("false", "true")
    )
    difference = compare_runs(plain, replayed)
    if difference is None:
        yield ok("graphs", "the results with and without are equal bit for bit")
    else:
        yield warning("graphs", f"with and without differ: {difference}", "leave runtime.graphs = false")


def _memory(peak: int | None, plan: RunPlan) -> Finding:
    """Compares the most bytes in use in a run with what `hpcfl plan` says of it, its data and its clients."""
    if peak is None:
        return ok("memory", "torch cannot say how much was in use")
    dims = (plan.architectures, plan.data.shape, *plan.dims)
    counted = costs(*dims, plan.config.train.batch_size, plan.config.runtime.inference_batch)
    forecast = Forecast(plan, counted, machine_like_here(1, 1, 1, None, None, None), (0, 0))
    needed = gpu_memory(forecast, 0).total - CUDA_CONTEXT_BYTES
    kept = plan.data.x.nbytes + plan.data.y.nbytes + forecast.arena(0)  # where there is room
    detail = (
        f"at most {format_memory(peak)} in use by tensors; hpcfl plan says {format_memory(needed)}, and "
        f"{format_memory(kept)} of data and states may be kept beside it"
    )
    if peak > MARGIN * (needed + kept) + LIBRARY_BYTES:
        return warning("memory", detail, "more than planned: tell the maintainers of hpcfl")
    return ok("memory", detail)


def _plan(settings: Sequence[str]) -> RunPlan:
    return plan_run(load_config(None, [*SHORT, "runtime.walltime_minutes=off", *settings]))


def _train(settings: Sequence[str], log: Path) -> Run:
    hooks = RunHooks(make_display=NoProgress, may_exit=False)
    run_federation(SerialCommunicator(), _plan(settings), log, True, hooks)
    return read_log(log)


def _accuracy(run: Run) -> np.ndarray:
    return np.asarray(run["/round/accuracy"])


def _yes(able: bool) -> str:
    return "yes" if able else "no"
