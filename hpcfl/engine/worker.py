"""A rank's work on clients: one buffer to train in, and one network per architecture bound to it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from hpcfl.engine.context import WorkerContext
from hpcfl.engine.evaluator import Evaluator
from hpcfl.engine.rank_report import CpuSeconds
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Payload, copy_to, is_finite
from hpcfl.federation.sent_features import Selection, sent_samples
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.metrics.features import RankFeatures
from hpcfl.metrics.records import RankMetrics
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.bound_network import bind_network
from hpcfl.training.learning_rate import learning_rate
from hpcfl.training.local_client import LocalClient
from hpcfl.training.samples import SampleSource
from hpcfl.training.state import empty_vector
from hpcfl.utils import seeds


class Worker:
    """Hosts clients, one at a time: copy the state in, train or evaluate, copy it out."""

    def __init__(self, ctx: WorkerContext, clients: Iterable[int]):
        """`clients` are those that this rank may host."""
        self.ctx, plan, layouts = ctx, ctx.plan, ctx.records.layouts
        self.algorithm = ctx.algorithm
        self.download: Payload = {}
        """`download` is what clients use of the server's last one."""
        self.source = SampleSource(plan.data, plan.config.data, ctx.device)
        self.evaluator = Evaluator(plan, ctx.algorithm)
        names = sorted({plan.clients[i].architecture for i in clients})
        nbytes = max((layouts.buffer_bytes(name) for name in names), default=0)
        self.buffer = empty_vector(nbytes, ctx.device)
        self.networks = {
            name: bind_network(name, layouts, self.buffer, plan.train, ctx.step_options[name])
            for name in names
        }
        self.metrics = RankMetrics(run_metrics(plan), dimension_sizes(plan))
        self.features = RankFeatures(plan.dims[1])
        self.sent: tuple[int, Selection] = -1, ()
        """A round, and the test samples whose features are sent after it."""
        self.cpu_on_clients, self.cpu_reported = 0.0, time.process_time()
        self.round_start = time.perf_counter()
        """When the broadcast of the current round was there."""

    def receive(self, download: Payload) -> None:
        """Takes a new download; it is applied to a client when that is loaded."""
        self.download = self.algorithm.receive(copy_to(download, self.ctx.device))

    def train_client(self, t: int, i: int) -> ClientUpload:
        """Trains client i in round t and returns its upload; a diverged client uploads nothing."""
        start, cpu = time.perf_counter(), time.process_time()
        client = self.load(t, i)
        upload: Payload = {}
        client.metrics["trained"] = True
        if not client.bound.diverged or self.algorithm.recovers:
            self.algorithm.apply_download(client, self.download)
            seed_torch(seeds.key(self.ctx.plan.config.seed, "train", i, t), self.ctx.device)
            client.bound.set_learning_rate(learning_rate(self.ctx.plan.train, t))
            losses = self.algorithm.train(client, self.download)
            if "loss" not in losses:
                raise TypeError(f"{self.ctx.plan.spec.algorithm}: `train` must return the loss as 'loss'")
            for name, value in losses.items():
                if name in (client.metrics.dtype.names or ()):
                    client.metrics[name] = value
            if not (self.download and self.algorithm.receivers == "once"):
                upload = self.algorithm.upload(client, self.download)
            diverged = not np.isfinite(losses["loss"]) or not is_finite(upload)
            client.blocks["diverged"].fill_(diverged)
            if not diverged:
                client.metrics["head_norms"] = client.network.head_norms().cpu().numpy()
            if diverged and self.algorithm.recovers:  # all else stays as it was before the round
                self.ctx.records.state_block(i, "diverged").fill_(True)
            else:
                self.ctx.records.state(i).copy_(self.buffer[: client.bound.layout.nbytes])
            client.metrics["seconds"] = time.perf_counter() - start
            client.metrics["started"] = start - self.round_start
        self.cpu_on_clients += time.process_time() - cpu
        return ClientUpload(i, client.bound.diverged, {} if client.bound.diverged else upload)

    def evaluate_network(self, t: int, i: int) -> None:
        """Evaluates what needs only client i's state as its last training left it."""
        cpu = time.process_time()
        self.evaluator.evaluate_network(self.load(t, i), self.ctx.records.record(i))
        self.cpu_on_clients += time.process_time() - cpu

    def evaluate_download(self, t: int, i: int) -> None:
        """Completes client i's evaluation of round t with the download that followed it."""
        cpu, records, changes = time.process_time(), self.ctx.records, self.algorithm.download_changes
        client, diverged = self._client(t, i), bool(records.state_block(i, "diverged"))
        diverged = diverged and not self.algorithm.recovers
        whole = changes == "network" or self.ctx.plan.config.log.train_accuracy
        if (whole or changes == "head") and not diverged:
            client = self.load(t, i, extractor=whole)
            if changes != "nothing":
                self.algorithm.apply_download(client, self.download)
        z_ND = self.evaluator.evaluate_download(client, records.record(i), diverged, self.download)
        if self.sent[0] != t:
            self.sent = t, sent_samples(self.ctx.plan, t)
        if len(sample_R := self.sent[1][i]) and not diverged:
            self.features.add(i, sample_R, z_ND.cpu().numpy()[sample_R])
        self.cpu_on_clients += time.process_time() - cpu

    def pop_cpu_seconds(self) -> CpuSeconds:
        """Returns the CPU seconds of this rank since the last call."""
        now = time.process_time()
        seconds = CpuSeconds(self.cpu_on_clients, now - self.cpu_reported)
        self.cpu_on_clients, self.cpu_reported = 0.0, now
        return seconds

    def load(self, t: int, i: int, extractor: bool = True) -> LocalClient:
        """Copies client i's state into the buffer, on request without its extractor, which is large."""
        client = self._client(t, i)
        if extractor:
            self.buffer[: client.bound.layout.nbytes].copy_(self.ctx.records.state(i))
        else:
            for name in client.bound.layout.offsets:
                if not name.startswith("extractor."):
                    client.blocks[name].copy_(self.ctx.records.state_block(i, name))
        for block in client.bound.scratch:
            client.blocks[block.name].fill_(block.start)
        return client

    def _client(self, t: int, i: int) -> LocalClient:
        """Returns client i without its state, which may be that of another client."""
        bound = self.networks[self.ctx.plan.clients[i].architecture]
        return LocalClient(t, i, self.ctx.plan, bound, self.source, self.metrics.of(i))
