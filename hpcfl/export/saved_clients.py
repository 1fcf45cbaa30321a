"""The clients of a run as its newest checkpoint has them: their networks, and the samples that these read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.algorithms.build import build_algorithm
from hpcfl.algorithms.initial_network import write_initial_state
from hpcfl.checkpoint.restore import load_server_state
from hpcfl.checkpoint.store import (
    CheckpointStore,
    DamagedCheckpoint,
    Manifest,
    checkpoint_directory,
    read_manifest,
)
from hpcfl.config.identity import identity
from hpcfl.errors import BadInput
from hpcfl.exchange.codec import Codec
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.existing_run import changed_content, logged_checksums
from hpcfl.log.reader import Run
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.metrics.records import RankMetrics
from hpcfl.models.network import Network
from hpcfl.training.bound_network import bind_network
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.local_client import LocalClient, Part
from hpcfl.training.samples import SampleSource
from hpcfl.training.state import bind, empty_vector
from hpcfl.training.step.options import StepOptions

CPU = torch.device("cpu")


class SavedClients:
    """Reads the clients of a run; needs its dataset and the user's own code, as the run does."""

    def __init__(self, run: Run):
        self.run, self.store = run, CheckpointStore(checkpoint_directory(run.path))
        self.manifest = _newest(run, self.store)
        self.plan = _plan_again(run)
        names, channels_last = self.plan.architectures, self.manifest.channels_last
        self.algorithm = build_algorithm(self.plan, CPU)
        self.options = {name: StepOptions(False, False, name in channels_last) for name in names}
        self.layouts = ClientLayouts(self.plan, self.algorithm, self.options)
        self.source = SampleSource(self.plan.data, self.plan.config.data, CPU)
        self.metrics = RankMetrics(run_metrics(self.plan), dimension_sizes(self.plan))
        try:
            state = self.store.read_arrays(self.manifest.server)
            load_server_state(self.plan, self.algorithm, state)
        except DamagedCheckpoint as error:
            raise BadInput(f"cannot read {self.store.path}: {error}") from None
        stopped_M = state["diverged"] & (not self.algorithm.recovers)
        self.diverged: list[int] = np.flatnonzero(stopped_M).tolist()
        """Clients that have no finite network."""
        download = Codec(self.algorithm.download_arrays()).decode(state["download"])
        self.download = self.algorithm.receive(download)

    @property
    def round(self) -> int:
        """The round, from 0, after which the states were saved."""
        return self.manifest.round

    def client(self, i: int) -> SavedClient:
        """Returns client i."""
        if not 0 <= i < len(self.plan.clients):
            raise BadInput(f"client {i}: {self.run.path} has the clients 0 to {len(self.plan.clients) - 1}")
        return SavedClient(i, self)

    def load(self, i: int) -> LocalClient:
        """Returns client i with the state in which it is evaluated: the last download is applied to it."""
        name = self.plan.clients[i].architecture
        layout, buffer = self.layouts.state(i), empty_vector(self.layouts.buffer_bytes(name))
        saved = self._saved(i)
        if saved.nbytes != layout.nbytes:
            raise BadInput(f"client {i} has {saved.nbytes} bytes in {self.store.path}, {layout.nbytes} here")
        if i in self.diverged:
            raise BadInput(f"client {i} of {self.run.path} has diverged: its network is not finite")
        bound = bind_network(name, self.layouts, buffer, self.plan.train, self.options[name])
        buffer[: layout.nbytes] = torch.from_numpy(saved)
        for block in bound.scratch:
            bound.views[block.name].fill_(block.start)
        old = layout.views(torch.from_numpy(saved))
        metrics = self.metrics.of(i)
        client = LocalClient(self.round, i, self.plan, bound, self.source, metrics, old.__getitem__)
        if self.algorithm.download_changes != "nothing":
            self.algorithm.apply_download(client, self.download)
        return client

    def _saved(self, i: int) -> np.ndarray:
        """Returns the state of client i as bytes."""
        range_ = self.manifest.clients[i]
        if range_ is None:  # never trained
            state = empty_vector(self.layouts.state(i).nbytes)
            write_initial_state(self.plan, self.layouts, i, state)
            return state.numpy()
        try:
            return self.store.read(range_)
        except DamagedCheckpoint as error:
            raise BadInput(f"cannot read client {i} in {self.store.path}: {error}") from None


@dataclass(frozen=True, repr=False)
class SavedClient:
    """A client after the round of a checkpoint."""

    id: int
    clients: SavedClients

    @property
    def architecture(self) -> str:
        return self.clients.plan.clients[self.id].architecture

    @property
    def round(self) -> int:
        """The round, counted from 1, after which this is its state: of a finished run the last one."""
        return self.clients.round + 1

    def __repr__(self) -> str:
        return f"<Client {self.id} of {self.clients.run.path}: {self.architecture}, round {self.round}>"

    def network(self) -> Network:
        """Returns its network in eval mode: `extractor` gives features, `head` logits of features.

        Where the server's head or network replaces the client's, it has been put in.
        """
        views = self.clients.load(self.id).blocks
        network = self.clients.layouts.network(self.architecture).eval()
        dense = torch.contiguous_format
        bind(network, {name: view.detach().clone(memory_format=dense) for name, view in views.items()})
        return network

    def samples(self, part: Part = "test") -> tuple[Tensor, Tensor]:
        """Returns its samples of a part of the split, as its network reads them, and their labels."""
        index_N: np.ndarray = getattr(self.clients.plan.clients[self.id].split, part)
        x_N, y_N = self.clients.source.samples(index_N).batch(np.arange(len(index_N)))
        return x_N.contiguous(), y_N


def _newest(run: Run, store: CheckpointStore) -> Manifest:
    """Returns the newest manifest of a run that can be read."""
    problem = f"there is no checkpoint in {store.path}"
    wanted = identity(run.config, logged_checksums(run))
    for path in store.manifests():
        try:
            manifest = read_manifest(path)
        except DamagedCheckpoint as error:
            problem = str(error)
            continue
        if manifest.identity != wanted:
            problem = f"{path} belongs to another run"
        elif manifest.round >= run.rounds_done:
            problem = f"{path} is of round {manifest.round + 1}, the log has {run.rounds_done}"
        elif len(manifest.clients) != run.config.federation.clients:
            problem = f"{path} has {len(manifest.clients)} clients"
        else:
            return manifest
    raise BadInput(
        f"{run.path} has no networks: {problem}; a run keeps them beside its log when it ends or stops, a "
        "cell of a study only with `hpcfl study run --keep`, a run that diverged never"
    )


def _plan_again(run: Run) -> RunPlan:
    """Returns the plan of a run that was logged; raises BadInput if its data or code are others now."""
    plan = plan_run(run.config)
    now: Mapping[str, str] = {k: v for k, v in plan.checksums.items() if not k.startswith("pretrained_")}
    if what := changed_content(run, now):
        raise BadInput(f"{run.path} is a run with another {what} than there is now")
    return plan
