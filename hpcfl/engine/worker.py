"""A rank's work on clients: one buffer to train in, one network per architecture bound to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.comm.codec import ClientUpload
from hpcfl.comm.metrics_codec import UNDEFINED, ClientMetrics, CpuSeconds
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.infer import num_correct
from hpcfl.methods.metrics import silhouette
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.methods.prototypes import ClassMeans, Prototypes, margin_K
from hpcfl.methods.pseudo_labels import with_last_length
from hpcfl.models.network import Network, build_network
from hpcfl.models.registry import split_name
from hpcfl.runtime.arena import Arena
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.samples import ClientSamples, SampleSource
from hpcfl.training.semi_supervised import TRAINING, ActiveSet, SemiSupervised, augmentation_of
from hpcfl.training.state import Layout, bind, copy_into, empty_vector
from hpcfl.training.step.options import StepOptions
from hpcfl.training.step.step import Step, make_step
from hpcfl.training.trainer import features, train
from hpcfl.utils import seeds


@dataclass(frozen=True)
class BoundNetwork:
    """A network bound to the worker's buffer, and the blocks of its clients' states."""

    step: Step
    layout: Layout
    views: dict[str, Tensor]

    @property
    def prototypes(self) -> Prototypes:
        """The local prototypes of the client whose state is in the buffer."""
        return Prototypes(self.views["local.value"], self.views["local.present"])


def initial_network(plan: RunPlan, i: int) -> Network:
    """Returns a client's network before its first round: parameters keyed by client."""
    name = plan.clients[i].architecture
    whose = (f"start {name}",) if plan.config.models.same_start else ("start", i)
    seed_torch(seeds.key(plan.config.seed, *whose), torch.device("cpu"))
    return build_network(name, plan.data.shape, *plan.dims)


class Worker:
    """Trains and evaluates clients, one at a time: copy the state in, work, copy it out."""

    def __init__(
        self,
        plan: RunPlan,
        method: PrototypeMethod,
        device: torch.device,
        options: Mapping[str, StepOptions],
        layouts: ClientLayouts,
        arena: Arena,
        clients: Iterable[int],
        pretrained: Mapping[str, Mapping[str, Tensor]],
        before_change: Callable[[int], None] = lambda i: None,
    ):
        self.plan, self.method, self.device, self.layouts, self.arena = plan, method, device, layouts, arena
        self.pretrained, self.before_change = pretrained, before_change
        self.source = SampleSource(plan.data, plan.config.data, device)
        self.count_MK = torch.from_numpy(plan.class_counts_MK).to(device)
        self.owned_MK = self.count_MK > 0
        self.semi = SemiSupervised(plan)
        names = sorted({plan.clients[i].architecture for i in clients})
        chosen = {name: layouts.states[name] for name in names}
        self.buffer = empty_vector(max((layout.nbytes for layout in chosen.values()), default=0), device)
        self.networks: dict[str, BoundNetwork] = {}
        for name, layout in chosen.items():
            network, views = layouts.network(name), layout.views(self.buffer)
            bind(network, views)
            self.networks[name] = BoundNetwork(
                make_step(network, plan.config.train, options[name]), layout, views
            )
        self.metrics: dict[int, ClientMetrics] = {}
        self.cpu, self.since = 0.0, time.process_time()

    def initialise(self, i: int) -> None:
        """Writes the state of a client before its first round."""
        record, network = self._record(i), initial_network(self.plan, i)
        record["state"].zero_()
        if weights := self.pretrained.get(split_name(self.plan.clients[i].architecture)[0]):
            network.extractor.load_state_dict(weights)
        views = self.layouts.state(i).views(record["state"])
        copy_into(views, network)
        views["thresholds"].fill_(torch.nan)

    def restore_client(self, i: int, vector: np.ndarray, layout: Layout) -> None:
        """Writes the state of a client as it was saved; `layout` says how it lay in memory then."""
        views = self.layouts.state(i).views(self._record(i)["state"])
        for name, saved in layout.views(torch.from_numpy(vector)).items():
            views[name].copy_(saved)

    def client_state(self, i: int) -> Tensor:
        """Returns a client's state as it lies in the arena."""
        return self._record(i)["state"]

    def train_client(self, t: int, i: int, target: Prototypes) -> ClientUpload:
        """Trains client i in round t and returns what it sends: the rows of the classes it has."""
        start, cpu = time.perf_counter(), time.process_time()
        self.before_change(i)
        network, metrics = self._load(i), self._metrics_of(i)
        if not network.views["diverged"]:
            self._train(t, i, network, target)
            self._record(i)["state"].copy_(self.buffer[: network.layout.nbytes])
            metrics.seconds = time.perf_counter() - start
        diverged = bool(network.views["diverged"])
        if not diverged:
            metrics.margin_K = margin_K(network.prototypes).cpu().numpy()
        metrics.trained = True
        self.cpu += time.process_time() - cpu
        settled = self.plan.spec.fixed and bool(target.present_K.any())
        return self._upload(i, network, sends=self.plan.spec.has_uploads and not diverged and not settled)

    def evaluate_local(self, i: int) -> None:
        """Keeps a client's test features, and its right answers by head and local prototypes."""
        cpu = time.process_time()
        network, record = self._load(i), self._record(i)
        if network.views["diverged"]:  # it answers nothing, so nothing is right
            record["z"].zero_()
            record["correct"].zero_()
            record["silhouette"].fill_(torch.nan)
        else:
            samples = self._samples(self.plan.clients[i].test, network)
            batch = self.plan.config.runtime.inference_batch
            z_ND = torch.cat([z_BD for z_BD, _ in features(network.step, samples, batch)])
            with torch.no_grad():
                by_head = num_correct(network.step.logits(z_ND).argmax(1), samples.labels_N)
            known = bool(network.prototypes.present_K.any())
            by_local = (
                num_correct(self.method.nearest_N(z_ND, network.prototypes), samples.labels_N)
                if known
                else UNDEFINED
            )
            record["z"].copy_(z_ND)
            record["correct"].copy_(torch.tensor([by_head, by_local]))
            record["silhouette"].fill_(silhouette(z_ND, samples.labels_N))
        self.cpu += time.process_time() - cpu

    def evaluate_global(self, i: int, target: Prototypes) -> None:
        """Completes a client's metrics, now that the prototypes of its round are here."""
        cpu = time.process_time()
        metrics, record = self._metrics_of(i), self._record(i)
        metrics.evaluated = True
        metrics.by_head, metrics.by_local = record["correct"].tolist()
        metrics.silhouette = record["silhouette"].item()
        if target.present_K.any():
            diverged = self.layouts.state(i).views(record["state"])["diverged"]
            y_N = self.source.samples(self.plan.clients[i].test).labels_N
            predicted_N = self.method.nearest_N(record["z"].to(self.device), self._allowed(i, target))
            metrics.by_global = 0 if diverged else num_correct(predicted_N, y_N)
        self.cpu += time.process_time() - cpu

    def pop_metrics(self) -> tuple[CpuSeconds, list[ClientMetrics]]:
        """Returns this rank's effort and its metrics since the last call."""
        now = time.process_time()
        taken = CpuSeconds(self.cpu, now - self.since), list(self.metrics.values())
        self.cpu, self.since, self.metrics = 0.0, now, {}
        return taken

    def _train(self, t: int, i: int, network: BoundNetwork, target: Prototypes) -> None:
        """Trains in the buffer, stores the local prototypes there, and records the loss."""
        config, metrics = self.plan.config, self._metrics_of(i)
        seed_torch(seeds.key(config.seed, "train", i, t), self.device)
        samples = self._samples(self.plan.clients[i].train, network)
        means = ClassMeans(*self.plan.dims, device=self.device)
        running, guided = config.method.prototypes == "running", bool(target.present_K.any())
        active = self._active_set(t, i, network, target) if guided and self.method.is_semi(t) else None
        losses = train(
            network.step,
            samples,
            self.method.local_loss.bind(t, target, self.count_MK[i]) if guided else None,
            lambda epoch: seeds.generator(config.seed, "shuffle", i, t, epoch),
            means if running else None,
            lambda epoch: augmentation_of(self.plan, i, t, epoch, TRAINING, config.train.augment),
            (lambda epoch: self.semi.batches(active, t, i, epoch)) if active else None,
        )
        for name, value in losses.items():
            setattr(metrics, name, value)
        if not running:
            for z_BD, y_B in features(network.step, samples, config.runtime.inference_batch):
                means.add(z_BD, y_B)
        if active:
            self.semi.add_to_means(active, t, i, network.step, means)
        prototypes = means.prototypes()
        if self.method.is_semi(t):
            prototypes = with_last_length(prototypes, network.prototypes)
        network.views["local.value"].copy_(prototypes.value_KD)
        network.views["local.present"].copy_(prototypes.present_K)
        fine = bool(np.isfinite(metrics.loss)) and prototypes.finite
        network.views["diverged"].fill_(not fine)
        if fine:
            metrics.dead_K = means.dead_K().cpu().numpy()
            metrics.norm_K = network.step.network.head_norms().cpu().numpy()

    def _active_set(self, t: int, i: int, network: BoundNetwork, target: Prototypes) -> ActiveSet | None:
        """Returns the unlabelled samples that client i trains on in round t; None if there are none."""
        metrics, limits_2 = self._metrics_of(i), network.views["thresholds"]
        own = Prototypes(target.value_KD, target.present_K & self.owned_MK[i])
        if limits_2.isnan().any():  # its first round of this phase
            labelled = self._samples(self.plan.clients[i].train, network)
            limits_2.copy_(self.semi.calibrate(network.step, labelled, own))
        metrics.thresholds = limits_2.cpu().numpy().copy()
        pool = self._samples(self.plan.clients[i].split.unlabelled, network)
        if not len(pool):
            return None
        active = self.semi.active_set(t, i, network.step, pool, own, limits_2)
        metrics.accepted, metrics.accepted_correct = len(active), active.num_correct
        return active if len(active) else None

    def _samples(self, index_N: np.ndarray, network: BoundNetwork) -> ClientSamples:
        return self.source.samples(index_N, network.step.options.memory_format)

    def _upload(self, i: int, network: BoundNetwork, sends: bool) -> ClientUpload:
        present_K = network.prototypes.present_K & sends
        rows = present_K.cpu().numpy().copy()  # the buffer is the next client's
        value_RD = network.prototypes.value_KD[present_K].cpu().numpy()
        count_R = self.plan.class_counts_MK[i][rows]
        if self.plan.spec.sends_products:  # the sparse-prototype paper's Algorithm 1, line 11
            value_RD = (value_RD * count_R[:, None].astype(np.float64)).astype(np.float32)
        return ClientUpload(i, bool(network.views["diverged"]), rows, value_RD, count_R)

    def _allowed(self, i: int, target: Prototypes) -> Prototypes:
        if not self.plan.config.method.own_classes:
            return target
        return Prototypes(target.value_KD, target.present_K & self.owned_MK[i])

    def _metrics_of(self, i: int) -> ClientMetrics:
        return self.metrics.setdefault(i, ClientMetrics(i))

    def _record(self, i: int) -> dict[str, Tensor]:
        return self.layouts.layout(i).views(self.arena.vectors[i])

    def _load(self, i: int) -> BoundNetwork:
        network = self.networks[self.plan.clients[i].architecture]
        self.buffer[: network.layout.nbytes].copy_(self._record(i)["state"])
        return network
