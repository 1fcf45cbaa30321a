"""A rank's work on clients: one buffer to train in, one network per architecture bound to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl import seeds
from hpcfl.arena import Arena
from hpcfl.client import features, train
from hpcfl.comm.report import UNDEFINED, Effort, Report
from hpcfl.comm.wire import Parcel
from hpcfl.devices import seed_torch
from hpcfl.federation import Federation
from hpcfl.methods.infer import right
from hpcfl.methods.method import Method
from hpcfl.methods.prototypes import ClassMeans, Prototypes, margin_K
from hpcfl.models.network import Network, build
from hpcfl.models.registry import parts
from hpcfl.records import Records
from hpcfl.samples import Source
from hpcfl.state import Layout, bind, copy_into, empty_vector
from hpcfl.step.step import Step, step
from hpcfl.step.tune import Way
from hpcfl.views import View

TRAINING = 0
"""Which of a sample's views is trained on."""


@dataclass(frozen=True)
class Slot:
    """A network bound to the worker's buffer, and the blocks of its clients' states."""

    step: Step
    layout: Layout
    views: dict[str, Tensor]

    @property
    def prototypes(self) -> Prototypes:
        """The local prototypes of the client whose state is in the buffer."""
        return Prototypes(self.views["local.value"], self.views["local.present"])


def fresh_network(fed: Federation, i: int) -> Network:
    """Returns a client's network before its first round: parameters keyed by client."""
    name = fed.clients[i].architecture
    whose = (f"start {name}",) if fed.config.models.same_start else ("start", i)
    seed_torch(seeds.key(fed.config.seed, *whose), torch.device("cpu"))
    return build(name, fed.data.shape, *fed.dims)


class Worker:
    """Trains and evaluates clients, one at a time: copy the state in, work, copy it out."""

    def __init__(
        self,
        fed: Federation,
        method: Method,
        device: torch.device,
        ways: Mapping[str, Way],
        records: Records,
        arena: Arena,
        clients: Iterable[int],
        pretrained: Mapping[str, Mapping[str, Tensor]],
    ):
        self.fed, self.method, self.device, self.records, self.arena = fed, method, device, records, arena
        self.pretrained = pretrained
        self.source = Source(fed.data, fed.config.data, device)
        self.own_MK = torch.from_numpy(fed.class_counts_MK > 0).to(device)
        names = sorted({fed.clients[i].architecture for i in clients})
        layouts = {name: records.states[name] for name in names}
        self.buffer = empty_vector(max((layout.nbytes for layout in layouts.values()), default=0), device)
        self.slots: dict[str, Slot] = {}
        for name, layout in layouts.items():
            network, views = records.network(name), layout.views(self.buffer)
            bind(network, views)
            self.slots[name] = Slot(step(network, fed.config.train, ways[name]), layout, views)
        self.reports: dict[int, Report] = {}
        self.busy, self.since = 0.0, time.process_time()

    def start(self, i: int) -> None:
        """Writes the state of a client before its first round."""
        kept, network = self._kept(i), fresh_network(self.fed, i)
        kept["state"].zero_()
        if weights := self.pretrained.get(parts(self.fed.clients[i].architecture)[0]):
            network.extractor.load_state_dict(weights)
        copy_into(self.records.state(i).views(kept["state"]), network)

    def update(self, t: int, i: int, target: Prototypes) -> Parcel:
        """Trains client i in round t and returns what it sends: the rows of the classes it has."""
        start, busy = time.perf_counter(), time.process_time()
        slot, report = self._enter(i), self._report(i)
        if not slot.views["diverged"]:
            report.loss = self._train(t, i, slot, target)
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
        else:
            samples = self.source.samples(self.fed.clients[i].test, slot.step.way.memory_format)
            batch = self.fed.config.runtime.inference_batch
            z_ND = torch.cat([z_BD for z_BD, _ in features(slot.step, samples, batch)])
            with torch.no_grad():
                by_head = right(slot.step.scores(z_ND).argmax(1), samples.labels_N)
            known = bool(slot.prototypes.present_K.any())
            by_local = (
                right(self.method.nearest_N(z_ND, slot.prototypes), samples.labels_N) if known else UNDEFINED
            )
            kept["z"].copy_(z_ND)
            kept["right"].copy_(torch.tensor([by_head, by_local]))
        self.busy += time.process_time() - busy

    def compare(self, i: int, target: Prototypes) -> None:
        """Completes a client's report, now that the prototypes of its round are here."""
        busy = time.process_time()
        report, kept = self._report(i), self._kept(i)
        report.evaluated = True
        report.by_head, report.by_local = kept["right"].tolist()
        if target.present_K.any():
            diverged = self.records.state(i).views(kept["state"])["diverged"]
            y_N = self.source.samples(self.fed.clients[i].test).labels_N
            predicted_N = self.method.nearest_N(kept["z"].to(self.device), self._allowed(i, target))
            report.by_global = 0 if diverged else right(predicted_N, y_N)
        self.busy += time.process_time() - busy

    def take_reports(self) -> tuple[Effort, list[Report]]:
        """Returns this rank's effort and its reports since the last call."""
        now = time.process_time()
        taken = Effort(self.busy, now - self.since), list(self.reports.values())
        self.busy, self.since, self.reports = 0.0, now, {}
        return taken

    def _train(self, t: int, i: int, slot: Slot, target: Prototypes) -> float:
        """Trains in the buffer, stores the local prototypes there, and returns the loss."""
        config = self.fed.config
        seed_torch(seeds.key(config.seed, "train", i, t), self.device)
        samples = self.source.samples(self.fed.clients[i].train, slot.step.way.memory_format)
        means = ClassMeans(*self.fed.dims, device=self.device)
        running, augment = config.method.prototypes == "running", config.train.augment
        loss = train(
            slot.step,
            samples,
            (lambda z_BD, y_B: self.method.guide(z_BD, y_B, target)) if target.present_K.any() else None,
            lambda epoch: seeds.generator(config.seed, "shuffle", i, t, epoch),
            means if running else None,
            (lambda epoch: View(seeds.key(config.seed, "view", i, t, epoch, TRAINING), augment))
            if augment
            else None,
        )
        if not running:
            for z_BD, y_B in features(slot.step, samples, config.runtime.inference_batch):
                means.add(z_BD, y_B)
        prototypes = means.prototypes()
        slot.views["local.value"].copy_(prototypes.value_KD)
        slot.views["local.present"].copy_(prototypes.present_K)
        slot.views["diverged"].fill_(not (np.isfinite(loss) and prototypes.finite))
        return loss

    def _parcel(self, i: int, slot: Slot, sends: bool) -> Parcel:
        present_K = slot.prototypes.present_K & sends
        rows = present_K.cpu().numpy().copy()  # the buffer is the next client's
        value_RD = slot.prototypes.value_KD[present_K].cpu().numpy()
        return Parcel(i, bool(slot.views["diverged"]), rows, value_RD, self.fed.class_counts_MK[i][rows])

    def _allowed(self, i: int, target: Prototypes) -> Prototypes:
        if not self.fed.config.method.own_classes:
            return target
        return Prototypes(target.value_KD, target.present_K & self.own_MK[i])

    def _report(self, i: int) -> Report:
        return self.reports.setdefault(i, Report(i))

    def _kept(self, i: int) -> dict[str, Tensor]:
        return self.records.layout(i).views(self.arena.vectors[i])

    def _enter(self, i: int) -> Slot:
        slot = self.slots[self.fed.clients[i].architecture]
        self.buffer[: slot.layout.nbytes].copy_(self._kept(i)["state"])
        return slot
