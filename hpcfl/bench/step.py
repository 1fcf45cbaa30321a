"""How fast clients train: hpcfl's step, the plain loop and the machine's limits, in turn in one run."""

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
"""How often the contestants take turns in a repeat: what disturbs the machine then meets all of them."""


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
    fed = shortened(plan_run(load_config(path, settings)), samples)
    link = open_communicator(find_launcher())

    def body() -> int:
        figures = measured(link, fed, repeats, each)
        if link.is_server:
            print_figures(figures, old)
        with link.agreed():
            if link.is_server and out:
                write_figures(out, figures)
        return DONE

    return run_guarded(link, body)


def shortened(fed: RunPlan, samples: int) -> RunPlan:
    """Returns a federation of one client per architecture, with so many samples, a third of them to test."""
    config = fed.config.model_copy(update={"train": fed.config.train.model_copy(update={"augment": []})})
    first = {client.architecture: client for client in reversed(fed.clients)}
    rows = np.concatenate([client.train for client in fed.clients])
    rows = np.random.default_rng(0).permutation(rows)
    train, test = rows[:samples], rows[samples : samples + max(1, samples // 3)]
    clients = tuple(
        Client(i, name, replace(first[name].split, train=train, test=test if len(test) else train))
        for i, name in enumerate(fed.architectures)
    )
    counts_K = np.bincount(fed.data.y[train], minlength=fed.data.classes)
    return replace(fed, config=config, clients=clients, class_counts_MK=np.stack([counts_K] * len(clients)))


def measured(link: Communicator, fed: RunPlan, repeats: int, each: bool) -> dict[str, Any]:
    """Returns all figures, means over the ranks, which do the same at the same time."""
    with link.agreed():
        device = set_up_torch(fed.config.runtime, link.local_rank)
    import torch

    from hpcfl.bench.limits import MachineLimits, timed
    from hpcfl.bench.step_comparison import StepComparison
    from hpcfl.training.step.options import describe_options

    with link.agreed():
        contest, limits = StepComparison(fed, device, each), MachineLimits(device)
    figures: dict[str, Any] = {
        "config": dump_config(fed.config),
        "ranks": link.size,
        "host": platform.node(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "device": str(device),
        "step": describe_options(contest.ways),
        "samples": len(fed.clients[0].train),
        "repeats": repeats,
        "limits": {"gemm": [], "memory": []},
        "seconds": {name: {} for name in fed.architectures},
        "flops": contest.flops,
    }
    ids = range(len(fed.clients))
    seconds = {(i, label): np.zeros((repeats, TURNS)) for i in ids for label in contest.labels}
    for i, label in seconds:
        with link.agreed():
            contest.run(label, i, 0)  # libraries set themselves up
    for repeat, turn in np.ndindex(repeats, TURNS):
        if turn == 0:
            for name, measure in (("gemm", limits.multiplications), ("memory", limits.memory)):
                figures["limits"][name].append(_mean(link, measure))
        for i in ids:
            for label in contest.labels[:: 1 - 2 * (turn % 2)]:  # there and back
                work = partial(contest.run, label, i, 1 + repeat * TURNS + turn)
                seconds[i, label][repeat, turn] = _mean(link, partial(timed, work, device))
    for (i, label), taken in seconds.items():
        figures["seconds"][fed.architectures[i]][label] = taken.mean(1).tolist()
    figures["losses"] = contest.losses
    return figures


def _mean(link: Communicator, measure: Callable[[], float]) -> float:
    """Returns the mean over ranks of what all measure at the same time."""
    mine = 0.0
    link.facts(None)
    with link.agreed():
        mine = measure()
    return float(np.mean(link.facts(mine)))
