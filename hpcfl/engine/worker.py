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


def initial_network(fed: RunPlan, i: int) -> Network:
    """Returns a client's network before its first round: parameters keyed by client."""
    name = fed.clients[i].architecture
    whose = (f"start {name}",) if fed.config.models.same_start else ("start", i)
    seed_torch(seeds.key(fed.config.seed, *whose), torch.device("cpu"))
    return build_network(name, fed.data.shape, *fed.dims)


class Worker:
    """Trains and evaluates clients, one at a time: copy the state in, work, copy it out."""

    def __init__(
        self,
        fed: RunPlan,
        method: PrototypeMethod,
        device: torch.device,
        ways: Mapping[str, StepOptions],
        records: ClientLayouts,
        arena: Arena,
        clients: Iterable[int],
        pretrained: Mapping[str, Mapping[str, Tensor]],
        about_to_change: Callable[[int], None] = lambda i: None,
    ):
        self.fed, self.method, self.device, self.records, self.arena = fed, method, device, records, arena
        self.pretrained, self.about_to_change = pretrained, about_to_change
        self.source = SampleSource(fed.data, fed.config.data, device)
        self.count_MK = torch.from_numpy(fed.class_counts_MK).to(device)
        self.own_MK = self.count_MK > 0
        self.semi = SemiSupervised(fed)
        names = sorted({fed.clients[i].architecture for i in clients})
        layouts = {name: records.states[name] for name in names}
        self.buffer = empty_vector(max((layout.nbytes for layout in layouts.values()), default=0), device)
        self.slots: dict[str, BoundNetwork] = {}
        for name, layout in layouts.items():
            network, views = records.network(name), layout.views(self.buffer)
            bind(network, views)
            self.slots[name] = BoundNetwork(make_step(network, fed.config.train, ways[name]), layout, views)
        self.reports: dict[int, ClientMetrics] = {}
        self.busy, self.since = 0.0, time.process_time()

    def start(self, i: int) -> None:
        """Writes the state of a client before its first round."""
        kept, network = self._kept(i), initial_network(self.fed, i)
        kept["state"].zero_()
        if weights := self.pretrained.get(split_name(self.fed.clients[i].architecture)[0]):
            network.extractor.load_state_dict(weights)
        views = self.records.state(i).views(kept["state"])
        copy_into(views, network)
        views["thresholds"].fill_(torch.nan)

    def restore(self, i: int, vector: np.ndarray, layout: Layout) -> None:
        """Writes the state of a client as it was saved; `layout` says how it lay in memory then."""
        views = self.records.state(i).views(self._kept(i)["state"])
        for name, saved in layout.views(torch.from_numpy(vector)).items():
            views[name].copy_(saved)

    def state(self, i: int) -> Tensor:
        """Returns a client's state as it lies in the arena."""
        return self._kept(i)["state"]

    def update(self, t: int, i: int, target: Prototypes) -> ClientUpload:
        """Trains client i in round t and returns what it sends: the rows of the classes it has."""
        start, busy = time.perf_counter(), time.process_time()
        self.about_to_change(i)
        slot, report = self._enter(i), self._report(i)
        if not slot.views["diverged"]:
            self._train(t, i, slot, target)
            self._kept(i)["state"].copy_(self.buffer[: slot.layout.nbytes])
            report.seconds = time.perf_counter() - start
        diverged = bool(slot.views["diverged"])
        if not diverged:
            report.margin_K = margin_K(slot.prototypes).cpu().numpy()
        report.trained = True
        self.busy += time.process_time() - busy
        settled = self.fed.recipe.fixed and bool(target.present_K.any())
        return self._parcel(i, slot, sends=self.fed.recipe.travels and not diverged and not settled)

    def look(self, i: int) -> None:
        """Keeps a client's test features, and its right answers by head and local prototypes."""
        busy = time.process_time()
        slot, kept = self._enter(i), self._kept(i)
        if slot.views["diverged"]:  # it answers nothing, so nothing is right
            kept["z"].zero_()
            kept["right"].zero_()
            kept["silhouette"].fill_(torch.nan)
        else:
            samples = self._samples(self.fed.clients[i].test, slot)
            batch = self.fed.config.runtime.inference_batch
            z_ND = torch.cat([z_BD for z_BD, _ in features(slot.step, samples, batch)])
            with torch.no_grad():
                by_head = num_correct(slot.step.scores(z_ND).argmax(1), samples.labels_N)
            known = bool(slot.prototypes.present_K.any())
            by_local = (
                num_correct(self.method.nearest_N(z_ND, slot.prototypes), samples.labels_N)
                if known
                else UNDEFINED
            )
            kept["z"].copy_(z_ND)
            kept["right"].copy_(torch.tensor([by_head, by_local]))
            kept["silhouette"].fill_(silhouette(z_ND, samples.labels_N))
        self.busy += time.process_time() - busy

    def compare(self, i: int, target: Prototypes) -> None:
        """Completes a client's report, now that the prototypes of its round are here."""
        busy = time.process_time()
        report, kept = self._report(i), self._kept(i)
        report.evaluated = True
        report.by_head, report.by_local = kept["right"].tolist()
        report.silhouette = kept["silhouette"].item()
        if target.present_K.any():
            diverged = self.records.state(i).views(kept["state"])["diverged"]
            y_N = self.source.samples(self.fed.clients[i].test).labels_N
            predicted_N = self.method.nearest_N(kept["z"].to(self.device), self._allowed(i, target))
            report.by_global = 0 if diverged else num_correct(predicted_N, y_N)
        self.busy += time.process_time() - busy

    def take_reports(self) -> tuple[CpuSeconds, list[ClientMetrics]]:
        """Returns this rank's effort and its reports since the last call."""
        now = time.process_time()
        taken = CpuSeconds(self.busy, now - self.since), list(self.reports.values())
        self.busy, self.since, self.reports = 0.0, now, {}
        return taken

    def _train(self, t: int, i: int, slot: BoundNetwork, target: Prototypes) -> None:
        """Trains in the buffer, stores the local prototypes there, and reports the loss."""
        config, report = self.fed.config, self._report(i)
        seed_torch(seeds.key(config.seed, "train", i, t), self.device)
        samples = self._samples(self.fed.clients[i].train, slot)
        means = ClassMeans(*self.fed.dims, device=self.device)
        running, guided = config.method.prototypes == "running", bool(target.present_K.any())
        active = self._active_set(t, i, slot, target) if guided and self.method.is_semi(t) else None
        losses = train(
            slot.step,
            samples,
            self.method.guide.at(t, target, self.count_MK[i]) if guided else None,
            lambda epoch: seeds.generator(config.seed, "shuffle", i, t, epoch),
            means if running else None,
            lambda epoch: augmentation_of(self.fed, i, t, epoch, TRAINING, config.train.augment),
            (lambda epoch: self.semi.batches(active, t, i, epoch)) if active else None,
        )
        for name, value in losses.items():
            setattr(report, name, value)
        if not running:
            for z_BD, y_B in features(slot.step, samples, config.runtime.inference_batch):
                means.add(z_BD, y_B)
        if active:
            self.semi.mix(active, t, i, slot.step, means)
        prototypes = means.prototypes()
        if self.method.is_semi(t):
            prototypes = with_last_length(prototypes, slot.prototypes)
        slot.views["local.value"].copy_(prototypes.value_KD)
        slot.views["local.present"].copy_(prototypes.present_K)
        fine = bool(np.isfinite(report.loss)) and prototypes.finite
        slot.views["diverged"].fill_(not fine)
        if fine:
            report.dead_K = means.dead_K().cpu().numpy()
            report.norm_K = slot.step.network.head_norms().cpu().numpy()

    def _active_set(self, t: int, i: int, slot: BoundNetwork, target: Prototypes) -> ActiveSet | None:
        """Returns the unlabelled samples that client i trains on in round t; None if there are none."""
        report, limits_2 = self._report(i), slot.views["thresholds"]
        own = Prototypes(target.value_KD, target.present_K & self.own_MK[i])
        if limits_2.isnan().any():  # its first round of this phase
            labelled = self._samples(self.fed.clients[i].train, slot)
            limits_2.copy_(self.semi.calibrate(slot.step, labelled, own))
        report.thresholds = limits_2.cpu().numpy().copy()
        pool = self._samples(self.fed.clients[i].split.unlabelled, slot)
        if not len(pool):
            return None
        active = self.semi.active_set(t, i, slot.step, pool, own, limits_2)
        report.accepted, report.accepted_right = len(active), active.right
        return active if len(active) else None

    def _samples(self, index_N: np.ndarray, slot: BoundNetwork) -> ClientSamples:
        return self.source.samples(index_N, slot.step.way.memory_format)

    def _parcel(self, i: int, slot: BoundNetwork, sends: bool) -> ClientUpload:
        present_K = slot.prototypes.present_K & sends
        rows = present_K.cpu().numpy().copy()  # the buffer is the next client's
        value_RD = slot.prototypes.value_KD[present_K].cpu().numpy()
        count_R = self.fed.class_counts_MK[i][rows]
        if self.fed.recipe.sends_products:  # the sparse-prototype paper's Algorithm 1, line 11
            value_RD = (value_RD * count_R[:, None].astype(np.float64)).astype(np.float32)
        return ClientUpload(i, bool(slot.views["diverged"]), rows, value_RD, count_R)

    def _allowed(self, i: int, target: Prototypes) -> Prototypes:
        if not self.fed.config.method.own_classes:
            return target
        return Prototypes(target.value_KD, target.present_K & self.own_MK[i])

    def _report(self, i: int) -> ClientMetrics:
        return self.reports.setdefault(i, ClientMetrics(i))

    def _kept(self, i: int) -> dict[str, Tensor]:
        return self.records.layout(i).views(self.arena.vectors[i])

    def _enter(self, i: int) -> BoundNetwork:
        slot = self.slots[self.fed.clients[i].architecture]
        self.buffer[: slot.layout.nbytes].copy_(self._kept(i)["state"])
        return slot
