"""Runs the same round of a client by the plain loop and by hpcfl with one or several step options."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.algorithms.prototype_algorithm import PrototypeAlgorithm
from hpcfl.bench.plain_loop import PlainLoop
from hpcfl.bench.step_table import OURS, PLAIN
from hpcfl.comm.serial import SerialCommunicator
from hpcfl.engine.client_records import ClientRecords
from hpcfl.engine.context import WorkerContext
from hpcfl.engine.worker import Worker
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototypes import Prototypes
from hpcfl.models.costs import costs
from hpcfl.runtime.arena import Arena, Reservation
from hpcfl.runtime.device_memory import DeviceMemory
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.step.options import StepOptions, all_step_options

STAGES = {
    "hpcfl, torch's step": StepOptions(direct=False, products=False, channels_last=False),
    "+ channels last": StepOptions(direct=False, products=False),
    "+ update in backward": StepOptions(products=False),
}
"""Optimisations added one after the other; with products added, these are hpcfl's options on CPUs."""


class StepComparison:
    """Plain loops and workers for one client per architecture."""

    def __init__(self, plan: RunPlan, device: torch.device, each: bool):
        config = plan.config
        networks = {name: [name] for name in plan.architectures}
        self.options = all_step_options(config.runtime, device.type, networks, plan.train.clip_norm)
        self.algorithm = PrototypeAlgorithm(plan, device)
        present_K = torch.ones(plan.dims[0], dtype=torch.bool)
        self.target = Prototypes(torch.zeros(plan.dims), present_K).to(device)
        stages = {label: dict.fromkeys(plan.architectures, options) for label, options in STAGES.items()}
        options_by_label = (stages if each else {}) | {OURS: self.options}
        self.workers = {
            label: make_worker(plan, device, chosen, self.algorithm)
            for label, chosen in options_by_label.items()
        }
        self.plain = [
            PlainLoop(plan, client, initial_network(plan, client.id).to(device), device)
            for client in plan.clients
        ]
        self.labels = [PLAIN, *options_by_label]
        costs_by_name = costs(
            plan.architectures,
            plan.data.shape,
            *plan.dims,
            config.train.batch_size,
            config.runtime.inference_batch,
            plan.data.input_type,
        )
        # training is a forward and a backward pass (3 forward passes); prototypes and test data one each
        passes = 3 * config.train.epochs + (config.method.prototypes != "running")
        self.flops = {
            c.architecture: costs_by_name[c.architecture].flops * (passes * len(c.train) + len(c.test))
            for c in plan.clients
        }
        self.names = plan.architectures
        self.losses: dict[str, dict[str, float]] = {name: {} for name in self.names}
        """Losses of the first round, in which all variants start from the same state."""

    def run(self, label: str, i: int, t: int) -> None:
        """Runs one round of a client by the variant with this label."""
        if label == PLAIN:
            loss = self.plain[i].round(t, self.algorithm.method, self.target)
        else:
            worker = self.workers[label]
            worker.download = {"prototypes": self.target}
            worker.train_client(t, i)
            worker.evaluate_network(t, i)
            worker.finish_evaluation()
            loss = float(worker.metrics.of(i)["loss"])
            worker.metrics.pop()
        if not math.isfinite(loss):
            raise BadInput(f"{self.names[i]} diverges: nothing to compare; lower train.lr or method.weight")
        self.losses[self.names[i]].setdefault(label, loss)


def make_worker(
    plan: RunPlan,
    device: torch.device,
    options: Mapping[str, StepOptions],
    algorithm: Algorithm,
    memory: DeviceMemory = DeviceMemory(),  # it is frozen
) -> Worker:
    """Returns a worker that hosts all clients in their initial state."""
    layouts, ids = ClientLayouts(plan, algorithm, options), range(len(plan.clients))
    arena = Arena(
        SerialCommunicator(), Reservation("private"), {i: layouts.layout(i).nbytes for i in ids}, leader=True
    )
    records = ClientRecords(plan, layouts, arena)
    for i in ids:
        records.initialise(i, {})
    return Worker(WorkerContext(plan, algorithm, device, options, records, device_memory=memory), ids)
