"""Speed of a joint step of two networks against the steps of each of them alone, measured in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.algorithms.mutual_learning import AUXILIARY, MutualLearning
from hpcfl.bench.step import short_plan
from hpcfl.bench.step_comparison import make_worker
from hpcfl.config.loading import load_config
from hpcfl.engine.worker import Worker
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE
from hpcfl.training.client_layout import networks_of_clients
from hpcfl.training.local_client import LocalClient
from hpcfl.training.step.options import all_step_options, describe_options


def bench_joint(path: str | None, settings: Sequence[str], repeats: int, samples: int) -> int:
    """Prints, for each architecture, the joint step ÷ the sum of both networks' own steps."""
    plan = short_plan(plan_run(load_config(path, settings)), samples)
    device = set_up_torch(plan.config.runtime, 0)
    joint, alone = _worker(plan, device), _worker(_unclipped(plan), device)
    options = [describe_options(worker.ctx.step_options) for worker in (joint, alone)]
    auxiliary = joint.algorithm.architecture  # type: ignore[attr-defined]
    print(f"joint: {options[0]}; alone: {options[1]}; auxiliary network: {auxiliary}")
    sums = np.zeros((repeats, 2, 2))
    for i, client in enumerate(plan.clients):
        seconds = np.array([_measure(joint, alone, i, repeat) for repeat in range(repeats + 1)])[1:]
        sums += seconds
        print(f"{client.architecture}: {_ratios(seconds)}", flush=True)
    print(f"all: {_ratios(sums)}")
    return DONE


def _unclipped(plan: RunPlan) -> RunPlan:
    """Returns the plan without clipping; the plain step stays where clipping chose it."""
    if not plan.train.clip_norm:
        return plan
    config, none = plan.config, {"clip_norm": 0.0}
    config = config.model_copy(
        update={
            "train": config.train.model_copy(update=none),
            "runtime": config.runtime.model_copy(update={"step": "plain"}),
        }
    )
    return replace(
        plan, config=config, spec=replace(plan.spec, settings=plan.spec.settings.model_copy(update=none))
    )


def _worker(plan: RunPlan, device: torch.device) -> Worker:
    algorithm = build_algorithm(plan, device)
    if not isinstance(algorithm, MutualLearning):
        raise BadInput(f"method.name = {plan.config.method.name!r}: no joint step; fml and fedkd have one")
    networks = networks_of_clients(plan, algorithm)
    options = all_step_options(plan.config.runtime, device.type, networks, plan.train.clip_norm)
    worker = make_worker(plan, device, options, algorithm)
    worker.receive(algorithm.initial())
    return worker


def _measure(joint: Worker, alone: Worker, i: int, t: int) -> list[list[float]]:
    """Returns wall and CPU seconds of the joint step, and of both networks alone."""
    client, other = (_loaded(worker, i, t) for worker in (joint, alone))
    works: list[Callable[[], object]] = [
        lambda: joint.algorithm.train(client, joint.download),
        lambda: (other.train(), other.train(step=other.extra_steps[AUXILIARY])),
    ]
    seconds = [[0.0, 0.0], [0.0, 0.0]]
    for which in (0, 1) if t % 2 else (1, 0):
        wall, cpu = time.perf_counter(), time.process_time()
        works[which]()
        seconds[which] = [time.perf_counter() - wall, time.process_time() - cpu]
    return seconds


def _loaded(worker: Worker, i: int, t: int) -> LocalClient:
    client = worker.load(t, i)
    worker.algorithm.apply_download(client, worker.download)
    return client


def _ratios(seconds: np.ndarray) -> str:
    """Returns the medians and the extremes of joint ÷ alone, by wall and by CPU time."""
    ratio_R2 = seconds[:, 0] / seconds[:, 1]
    wall, cpu = (
        f"{np.median(ratio_R):.3f} ({ratio_R.min():.3f}–{ratio_R.max():.3f})" for ratio_R in ratio_R2.T
    )
    return f"joint ÷ alone {wall}, by CPU time {cpu}"
