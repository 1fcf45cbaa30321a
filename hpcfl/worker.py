"""The clients of one rank: their state vectors, one buffer to train in, and what is reported of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl import seeds
from hpcfl.client import Samples, features, train
from hpcfl.comm.report import UNDEFINED, Report
from hpcfl.comm.wire import Parcel
from hpcfl.federation import Federation
from hpcfl.methods.infer import nearest_N, right
from hpcfl.methods.method import Method
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.models.network import Network, build
from hpcfl.state import Block, Layout, bind, copy_into, empty_vector, module_blocks


@dataclass(frozen=True)
class Slot:
    """A network bound to the worker's buffer, and the blocks of its clients' states."""

    network: Network
    layout: Layout
    views: dict[str, Tensor]

    @property
    def prototypes(self) -> Prototypes:
        """The local prototypes of the client whose state is in the buffer."""
        return Prototypes(self.views["local.value"], self.views["local.present"])


@dataclass(frozen=True)
class Look:
    """A client's test split through its network: what can be known before the next global prototypes."""

    z_ND: Tensor
    y_N: Tensor
    by_head: int
    by_local: int


class Worker:
    """Trains and evaluates its clients, one at a time, in one buffer as large as its largest network."""

    def __init__(self, fed: Federation, method: Method, device: torch.device, hosted: list[int]):
        self.fed, self.method, self.device, self.hosted = fed, method, device, hosted
        self.x = torch.from_numpy(fed.data.x).to(device)
        self.y = torch.from_numpy(fed.data.y).to(device)
        self.own_MK = torch.from_numpy(fed.class_counts_MK > 0).to(device)
        networks = self._networks({fed.clients[i].architecture for i in hosted})
        layouts = {name: Layout(self._blocks(network)) for name, network in networks.items()}
        self.buffer = empty_vector(max((x.nbytes for x in layouts.values()), default=0), device)
        self.slots = {}
        for name, network in networks.items():
            views = layouts[name].views(self.buffer)
            bind(network, views)
            self.slots[name] = Slot(network, layouts[name], views)
        self.vectors = {i: self._first_state(i) for i in hosted}
        self.looks: dict[int, Look] = {}
        self.reports = self._blank()
        self.busy = 0.0

    def update(self, t: int, i: int, target: Prototypes) -> Parcel:
        """Trains client i in round t and returns what it sends: the rows of the classes it has."""
        start, busy = time.perf_counter(), time.process_time()
        slot = self._enter(i)
        if not slot.views["diverged"]:
            loss = self._train(t, i, slot, target)
            self._leave(i, slot)
            self.looks.pop(i, None)
            self.reports[i].loss = loss
        diverged = bool(slot.views["diverged"])
        self.reports[i].trained = True
        self.reports[i].seconds = time.perf_counter() - start
        self.busy += time.process_time() - busy
        return self._parcel(i, slot, diverged)

    def look_at_test_data(self) -> None:
        """Computes test features, and accuracies by head and local prototypes, where they are out of date."""
        busy = time.process_time()
        for i in self.hosted:
            if i not in self.looks:
                self.looks[i] = self._look(i)
        self.busy += time.process_time() - busy

    def report(self, target: Prototypes, evaluated: bool) -> tuple[float, Iterable[Report]]:
        """Returns the round's CPU seconds and a record per client, complete with its prototypes here."""
        busy = time.process_time()
        for i, look in self.looks.items() if evaluated else ():
            report = self.reports[i]
            report.evaluated, report.by_head, report.by_local = True, look.by_head, look.by_local
            if target.present_K.any():
                report.by_global = right(nearest_N(look.z_ND, self._allowed(i, target)), look.y_N)
        reports, self.reports = self.reports, self._blank()
        self.busy += time.process_time() - busy
        spent, self.busy = self.busy, 0.0
        return spent, reports.values()

    def _train(self, t: int, i: int, slot: Slot, target: Prototypes) -> float:
        """Trains in the buffer, stores the local prototypes there, and returns the loss."""
        config = self.fed.config
        torch.manual_seed(seeds.key(config.seed, "train", i, t))
        samples = self._samples(self.fed.clients[i].train)
        means = ClassMeans(*self.fed.dims, device=self.device)
        running = config.method.prototypes == "running"
        loss = train(
            slot.network,
            samples,
            config.train,
            (lambda z_BD, y_B: self.method.guide(z_BD, y_B, target)) if target.present_K.any() else None,
            lambda epoch: seeds.generator(config.seed, "shuffle", i, t, epoch),
            means if running else None,
        )
        if not running:
            for z_BD, y_B in features(slot.network, samples, config.runtime.inference_batch):
                means.add(z_BD, y_B)
        prototypes = means.prototypes()
        slot.views["local.value"].copy_(prototypes.value_KD)
        slot.views["local.present"].copy_(prototypes.present_K)
        slot.views["diverged"].fill_(not (np.isfinite(loss) and prototypes.finite))
        return loss

    def _blank(self) -> dict[int, Report]:
        return {i: Report(i) for i in self.hosted}

    def _parcel(self, i: int, slot: Slot, diverged: bool) -> Parcel:
        present_K = slot.prototypes.present_K
        if diverged or not self.fed.recipe.exchange:
            present_K = torch.zeros_like(present_K)
        rows = present_K.cpu().numpy().copy()  # the buffer is the next client's
        value_RD = slot.prototypes.value_KD[present_K].cpu().numpy()
        return Parcel(i, diverged, rows, value_RD, self.fed.class_counts_MK[i][rows])

    def _look(self, i: int) -> Look:
        slot = self._enter(i)
        samples = self._samples(self.fed.clients[i].test)
        batch = self.fed.config.runtime.inference_batch
        z_ND = torch.cat([z_BD for z_BD, _ in features(slot.network, samples, batch)])
        y_N = samples.labels_N
        if slot.views["diverged"]:  # it answers nothing, so nothing is right
            return Look(z_ND.zero_(), torch.full_like(y_N, -1), 0, 0)
        with torch.no_grad():
            head = right(slot.network.head(z_ND).argmax(1), y_N)
        known = bool(slot.prototypes.present_K.any())
        local = right(nearest_N(z_ND, slot.prototypes), y_N) if known else UNDEFINED
        return Look(z_ND, y_N, head, local)

    def _allowed(self, i: int, target: Prototypes) -> Prototypes:
        if not self.fed.config.method.own_classes:
            return target
        return Prototypes(target.value_KD, target.present_K & self.own_MK[i])

    def _samples(self, index: np.ndarray) -> Samples:
        return Samples(self.x, self.y, torch.from_numpy(index).to(self.device))

    def _enter(self, i: int) -> Slot:
        slot = self.slots[self.fed.clients[i].architecture]
        self.buffer[: slot.layout.nbytes].copy_(self.vectors[i])
        return slot

    def _leave(self, i: int, slot: Slot) -> None:
        self.vectors[i].copy_(self.buffer[: slot.layout.nbytes])

    def _networks(self, names: set[str]) -> dict[str, Network]:
        with torch.device("meta"):
            return {name: build(name, self.fed.data.shape, *self.fed.dims) for name in sorted(names)}

    def _blocks(self, network: Network) -> list[Block]:
        classes, features = self.fed.dims
        return [
            *module_blocks(network),
            Block("local.value", torch.float32, (classes, features)),
            Block("local.present", torch.bool, (classes,)),
            Block("diverged", torch.bool, ()),
        ]

    def _first_state(self, i: int) -> Tensor:
        """Returns the state of a client before its first round: parameters keyed by client."""
        fed, name = self.fed, self.fed.clients[i].architecture
        whose = (f"start {name}",) if fed.config.models.same_start else ("start", i)
        torch.manual_seed(seeds.key(fed.config.seed, *whose))
        layout = self.slots[name].layout
        vector = empty_vector(layout.nbytes)
        copy_into(layout.views(vector), build(name, fed.data.shape, *fed.dims))
        return vector
