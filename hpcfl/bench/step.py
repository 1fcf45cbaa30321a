"""Speed of local training: hpcfl's step, the plain loop and the machine's limits, measured in turn."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.bench.step_table import print_figures, read_figures, write_figures
from hpcfl.comm.communicator import Communicator, open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.config.loading import dump_config, load_config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import Client, RunPlan, plan_run
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE, run_guarded

TURNS = 4
"""How often the variants take turns in a repeat, so that disturbances of the machine affect all alike."""


def bench_step(
    path: str | None,
    settings: Sequence[str],
    repeats: int,
    samples: int,
    each: bool,
    out: str | None,
    baseline: str | None,
) -> int:
    """Measures on all ranks, prints on rank 0, and returns the exit code."""
    old = read_figures(baseline) if baseline else None
    if out and (Path(out).is_dir() or not os.access(Path(out).parent, os.W_OK)):
        raise BadInput(f"--json {out}: cannot be written")
    plan = short_plan(plan_run(load_config(path, settings)), samples)
    comm = open_communicator(find_launcher())

    def body() -> int:
        figures = measure_all(comm, plan, repeats, each)
        if comm.is_server:
            print_figures(figures, old)
        with comm.raise_on_all():
            if comm.is_server and out:
                write_figures(out, figures)
        return DONE

    return run_guarded(comm, body)


def bench_ablation(
    path: str | None, settings: Sequence[str], repeats: int, samples: int, parts: Sequence[str]
) -> int:
    """Measures the step without one part after the other, prints, and returns the exit code."""
    if launcher := find_launcher():
        raise BadInput(f"--ablate: runs on one process; start it without {launcher.name}")
    if repeats < 2:
        raise BadInput(f"--repeats {repeats}: must be at least 2 with --ablate, the first is not counted")
    plan = short_plan(plan_run(load_config(path, settings)), samples)
    from hpcfl.bench.step_ablation import print_ablation

    print_ablation(plan, repeats, parts)
    return DONE


def short_plan(plan: RunPlan, samples: int) -> RunPlan:
    """Returns a plan with one client per architecture, each with `samples` to train and a third to test."""
    config = plan.config.model_copy(update={"train": plan.config.train.model_copy(update={"augment": []})})
    first = {client.architecture: client for client in reversed(plan.clients)}
    rows = np.concatenate([client.train for client in plan.clients])
    rows = np.random.default_rng(0).permutation(rows)
    train, test = rows[:samples], rows[samples : samples + max(1, samples // 3)]
    clients = tuple(
        Client(i, name, replace(first[name].split, train=train, test=test if len(test) else train))
        for i, name in enumerate(plan.architectures)
    )
    counts_K = np.bincount(plan.data.y[train], minlength=plan.data.classes)
    return replace(plan, config=config, clients=clients, class_counts_MK=np.stack([counts_K] * len(clients)))


def measure_all(comm: Communicator, plan: RunPlan, repeats: int, each: bool) -> dict[str, Any]:
    """Returns all figures as means over the ranks, which all do the same work at the same time."""
    with comm.raise_on_all():
        device = set_up_torch(plan.config.runtime, comm.local_rank)
    import torch

    from hpcfl.bench.limits import MachineLimits, timed
    from hpcfl.bench.step_comparison import StepComparison
    from hpcfl.training.step.options import describe_options

    with comm.raise_on_all():
        comparison, limits = StepComparison(plan, device, each), MachineLimits(device)
    figures: dict[str, Any] = {
        "config": dump_config(plan.config),
        "ranks": comm.size,
        "host": platform.node(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "device": str(device),
        "step": describe_options(comparison.options),
        "samples": len(plan.clients[0].train),
        "repeats": repeats,
        "limits": {"gemm": [], "memory": []},
        "seconds": {name: {} for name in plan.architectures},
        "flops": comparison.flops,
    }
    ids = range(len(plan.clients))
    seconds = {(i, label): np.zeros((repeats, TURNS)) for i in ids for label in comparison.labels}
    for i, label in seconds:
        with comm.raise_on_all():
            comparison.run(label, i, 0)  # warm-up: libraries initialise themselves
    for repeat, turn in np.ndindex(repeats, TURNS):
        if turn == 0:
            for name, measure in (("gemm", limits.multiplications), ("memory", limits.memory)):
                figures["limits"][name].append(_mean(comm, measure))
        for i in ids:
            for label in comparison.labels[:: 1 - 2 * (turn % 2)]:  # in alternating order
                work = partial(comparison.run, label, i, 1 + repeat * TURNS + turn)
                seconds[i, label][repeat, turn] = _mean(comm, partial(timed, work, device))
    for (i, label), taken in seconds.items():
        figures["seconds"][plan.architectures[i]][label] = taken.mean(1).tolist()
    figures["losses"] = comparison.losses
    return figures


def _mean(comm: Communicator, measure: Callable[[], float]) -> float:
    """Returns the mean over ranks of a value that all measure at the same time."""
    value = 0.0
    comm.allgather_object(None)
    with comm.raise_on_all():
        value = measure()
    return float(np.mean(comm.allgather_object(value)))
