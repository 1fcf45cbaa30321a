"""A rank's work on clients: one buffer to train in, and one network per architecture bound to it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

import numpy as np

from hpcfl.engine.context import WorkerContext
from hpcfl.engine.evaluator import Evaluator
from hpcfl.engine.rank_report import CpuSeconds
from hpcfl.engine.state_cache import StateCache
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Payload
from hpcfl.exchange.payload_tensors import copy_to, is_finite, replace_tensors, tensors
from hpcfl.federation.sent_features import Selection, sent_samples
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.metrics.features import RankFeatures
from hpcfl.metrics.records import RankMetrics
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.bound_network import bind_network
from hpcfl.training.learning_rate import learning_rate
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.losses import PendingLosses
from hpcfl.training.samples import SampleSource
from hpcfl.training.state import empty_vector
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device, to_host
from hpcfl.utils.host_copies import HostCopies


class Worker:
    """Hosts clients, one at a time: copy the state in, train or evaluate, copy it out."""

    def __init__(self, ctx: WorkerContext, clients: Iterable[int]):
        """`clients` are those that this rank may host."""
        self.ctx, plan, layouts = ctx, ctx.plan, ctx.records.layouts
        self.algorithm = ctx.algorithm
        self.download: Payload = {}
        """`download` is what clients use of the server's last one."""
        self.source = SampleSource(plan.data, plan.config.data, ctx.device, ctx.device_memory.holds_data)
        self.cache = StateCache(ctx.device_memory.cache)
        self.copies = HostCopies()
        self.evaluator = Evaluator(plan, ctx.algorithm, self.copies)
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
        diverged = self.has_diverged(i)
        if not diverged or self.algorithm.recovers:
            self.algorithm.apply_download(client, self.download)
            seed_torch(seeds.key(self.ctx.plan.config.seed, "train", i, t), self.ctx.device)
            client.bound.set_learning_rate(learning_rate(self.ctx.plan.train, t))
            losses = self.algorithm.train(client, self.download)
            if "loss" not in losses:
                raise TypeError(f"{self.ctx.plan.spec.algorithm}: `train` must return the loss as 'loss'")
            if not (self.download and self.algorithm.receivers == "once"):
                upload = self.algorithm.upload(client, self.download)
            upload, diverged = self._store(client, upload, losses)
            for name, value in losses.items():
                if name in (client.metrics.dtype.names or ()):
                    client.metrics[name] = value
            client.metrics["seconds"] = time.perf_counter() - start
            client.metrics["started"] = start - self.round_start
        self.cpu_on_clients += time.process_time() - cpu
        return ClientUpload(i, diverged, {} if diverged else upload)

    def _store(self, client: LocalClient, upload: Payload, losses: Losses) -> tuple[Payload, bool]:
        """Copies the state of a trained client out; returns its upload, on the host, and whether it diverged.

        All that the host needs of the client is fetched together, so that it waits for the device once.
        """
        nbytes = client.bound.layout.nbytes
        client.blocks["diverged"].fill_(False)
        measured = client.measured | {"head_norms": client.network.head_norms()}
        pending = losses if isinstance(losses, PendingLosses) else None
        parts = [*measured.values(), *tensors(upload), *(pending.on_device if pending else [])]
        state, *rest = to_host(self.buffer[:nbytes], *parts)
        host = iter(rest)
        values = {name: next(host) for name in measured}
        upload = self.algorithm.compress_upload(client.round, replace_tensors(upload, host))
        if pending:
            pending.finish(list(host))
        has_loss = bool(np.isfinite(losses["loss"]))
        diverged = not has_loss or not is_finite(upload)
        for name, value in values.items():
            if has_loss and not (diverged and name == "head_norms"):
                client.metrics[name] = value.numpy()
        if not (diverged and self.algorithm.recovers):  # else all stays as it was before the round
            stored = self.ctx.records.store(client.id, state)
            if not diverged:
                self.cache.put(client.id, stored, self.buffer[:nbytes])
        self.ctx.records.state_block(client.id, "diverged").fill_(diverged)
        return upload, diverged

    def has_diverged(self, i: int) -> bool:
        """Returns whether client i diverged when it was last trained."""
        return bool(self.ctx.records.state_block(i, "diverged"))

    def evaluate_network(self, t: int, i: int) -> None:
        """Evaluates what needs only client i's state as its last training left it."""
        cpu = time.process_time()
        diverged, record = self.has_diverged(i), self.ctx.records.record(i)
        self.evaluator.evaluate_network(self.load(t, i), record, diverged)
        self.cpu_on_clients += time.process_time() - cpu

    def evaluate_download(self, t: int, i: int) -> None:
        """Completes client i's evaluation of round t with the download that followed it."""
        cpu, records, changes = time.process_time(), self.ctx.records, self.algorithm.download_changes
        client, diverged = self._client(t, i), self.has_diverged(i)
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
            self.copies.add(z_ND, lambda host_ND: self.features.add(i, sample_R, host_ND.numpy()[sample_R]))
        self.cpu_on_clients += time.process_time() - cpu

    def finish_evaluation(self) -> None:
        """Fetches what the evaluations since the last call gave on the device."""
        cpu = time.process_time()
        self.copies.finish()
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
        state = self.cache.get(i, self.ctx.records.times_stored(i))
        if state is None:
            state = self.ctx.records.state(i)
        if extractor:
            self.buffer[: client.bound.layout.nbytes].copy_(to_device(state, self.ctx.device))
        else:
            for name in client.bound.layout.offsets:
                if not name.startswith("extractor."):
                    saved = client.bound.layout.view(state, name)
                    block = client.blocks[name]
                    block.copy_(to_device(saved.view(block.dtype), self.ctx.device))
        for each in client.bound.scratch:
            client.blocks[each.name].fill_(each.start)
        return client

    def _client(self, t: int, i: int) -> LocalClient:
        """Returns client i without its state, which may be that of another client."""
        bound = self.networks[self.ctx.plan.clients[i].architecture]
        saved = partial(self.ctx.records.state_block, i)
        return LocalClient(t, i, self.ctx.plan, bound, self.source, self.metrics.of(i), saved)
