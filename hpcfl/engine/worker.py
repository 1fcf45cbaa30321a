"""A rank's work on clients: one buffer to train in, and one network per architecture bound to it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from hpcfl.comm.codec import ClientUpload
from hpcfl.engine.context import WorkerContext
from hpcfl.engine.rank_report import CpuSeconds
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.methods.prototypes import Prototypes
from hpcfl.metrics.records import RankMetrics
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.bound_network import BoundNetwork, bind_network
from hpcfl.training.evaluator import Evaluator
from hpcfl.training.samples import SampleSource
from hpcfl.training.state import empty_vector
from hpcfl.training.trainer import Trainer
from hpcfl.utils import seeds


class Worker:
    """Hosts clients, one at a time: copy the state in, train or evaluate, copy it out."""

    def __init__(self, ctx: WorkerContext, clients: Iterable[int]):
        """`clients` are those that this rank may host."""
        self.ctx, plan, layouts = ctx, ctx.plan, ctx.records.layouts
        source = SampleSource(plan.data, plan.config.data, ctx.device)
        self.trainer = Trainer(plan, ctx.method, source, ctx.device)
        self.evaluator = Evaluator(plan, ctx.method, source, ctx.device)
        names = sorted({plan.clients[i].architecture for i in clients})
        nbytes = max((layouts.states[name].nbytes for name in names), default=0)
        self.buffer = empty_vector(nbytes, ctx.device)
        self.networks = {
            name: bind_network(
                layouts.network(name),
                layouts.states[name],
                self.buffer,
                plan.config.train,
                ctx.step_options[name],
            )
            for name in names
        }
        self.metrics = RankMetrics(run_metrics(plan), dimension_sizes(plan))
        self.cpu_on_clients, self.cpu_reported = 0.0, time.process_time()

    def train_client(self, t: int, i: int, target: Prototypes) -> ClientUpload:
        """Trains client i in round t and returns its upload: the rows of the classes that it has."""
        start, cpu = time.perf_counter(), time.process_time()
        network, metrics = self._load(i), self.metrics.of(i)
        metrics["trained"] = True
        if not network.diverged:
            seed_torch(seeds.key(self.ctx.plan.config.seed, "train", i, t), self.ctx.device)
            self.trainer.train(t, i, network, target, metrics)
            self.ctx.records.state(i).copy_(self.buffer[: network.layout.nbytes])
            metrics["seconds"] = time.perf_counter() - start
        upload = self._upload(i, network, target)
        self.cpu_on_clients += time.process_time() - cpu
        return upload

    def evaluate_network(self, i: int) -> None:
        """Evaluates what needs only client i's network and local prototypes."""
        cpu = time.process_time()
        self.evaluator.evaluate_network(i, self._load(i), self.ctx.records.record(i))
        self.cpu_on_clients += time.process_time() - cpu

    def evaluate_prototypes(self, i: int, target: Prototypes) -> None:
        """Completes client i's evaluation with the global prototypes of its round."""
        cpu, records = time.process_time(), self.ctx.records
        diverged = bool(records.state_blocks(i)["diverged"])
        self.evaluator.evaluate_prototypes(i, records.record(i), diverged, target, self.metrics.of(i))
        self.cpu_on_clients += time.process_time() - cpu

    def pop_cpu_seconds(self) -> CpuSeconds:
        """Returns the CPU seconds of this rank since the last call."""
        now = time.process_time()
        seconds = CpuSeconds(self.cpu_on_clients, now - self.cpu_reported)
        self.cpu_on_clients, self.cpu_reported = 0.0, now
        return seconds

    def _upload(self, i: int, network: BoundNetwork, target: Prototypes) -> ClientUpload:
        """Returns the prototypes of a client; none where it diverged, or where they are fixed already."""
        spec, prototypes = self.ctx.plan.spec, network.prototypes
        fixed = spec.fixed and bool(target.present_K.any())
        present_K = prototypes.present_K & (spec.has_uploads and not network.diverged and not fixed)
        rows = present_K.cpu().numpy().copy()  # the buffer is the next client's
        value_RD = prototypes.value_KD[present_K].cpu().numpy()
        count_R = self.ctx.plan.class_counts_MK[i][rows]
        if spec.sends_products:  # the sparse-prototype paper's Algorithm 1, line 11
            value_RD = (value_RD * count_R[:, None].astype(np.float64)).astype(np.float32)
        return ClientUpload(i, network.diverged, rows, value_RD, count_R)

    def _load(self, i: int) -> BoundNetwork:
        """Copies client i's state into the buffer and returns its network."""
        network = self.networks[self.ctx.plan.clients[i].architecture]
        self.buffer[: network.layout.nbytes].copy_(self.ctx.records.state(i))
        return network
