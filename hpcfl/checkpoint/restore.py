"""Restores a run from the newest checkpoint that every rank can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.checkpoint.store import CheckpointStore, DamagedCheckpoint, FileRange, Manifest, usable_manifests
from hpcfl.comm.communicator import Communicator
from hpcfl.exchange.codec import Codec
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.reader import Run
from hpcfl.runtime.scheduling import ClientQueue
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.state import Layout
from hpcfl.training.step.options import StepOptions

RestoreClient = Callable[[int, np.ndarray | None, Layout], None]
"""Writes a client's saved state, which has this layout, into the arena; None: its state at the start."""


@dataclass(frozen=True)
class RestoredRun:
    """A restored checkpoint: its round, the server's state, and where the client states are on disk."""

    round: int
    state: Mapping[str, np.ndarray]
    clients: tuple[FileRange | None, ...]


def restore_run(
    comm: Communicator,
    plan: RunPlan,
    store: CheckpointStore,
    identity: str,
    log: Run | None,
    restore_client: RestoreClient,
    queue: ClientQueue,
    algorithm: Algorithm,
    warn: Callable[[str], None],
) -> RestoredRun | None:
    """Restores and returns the newest checkpoint that all ranks can read; None: there is none. Collective."""
    rounds = plan.config.federation.rounds
    candidates = []
    if comm.is_server and log:
        candidates = list(usable_manifests(store, identity, log.rounds_done, rounds))
    for manifest, problem in comm.allgather_object(candidates)[0]:
        state: dict[str, np.ndarray] = {}
        if manifest is not None:
            try:
                _restore_clients(plan, algorithm, store, manifest, restore_client, queue)
                if comm.is_server:
                    state = store.read_arrays(manifest.server)
                    load_server_state(plan, algorithm, state)
            except DamagedCheckpoint as error:
                problem = str(error)
        problems = [each for each in comm.allgather_object(problem) if each]
        if manifest is not None and not problems:
            return RestoredRun(manifest.round, state, manifest.clients)
        warn(f"hpcfl: a checkpoint cannot be used ({problems[0]}); trying the one before")
    return None


def _restore_clients(
    plan: RunPlan,
    algorithm: Algorithm,
    store: CheckpointStore,
    manifest: Manifest,
    restore_client: RestoreClient,
    queue: ClientQueue,
) -> None:
    """Copies the saved states of this rank's share of the clients into the arena."""
    if len(manifest.clients) != len(plan.clients):
        raise DamagedCheckpoint(f"it has {len(manifest.clients)} clients, the run {len(plan.clients)}")
    options = {name: StepOptions(channels_last=name in manifest.channels_last) for name in plan.architectures}
    layouts = ClientLayouts(plan, algorithm, options)
    for i in queue.own_share():
        saved, layout = manifest.clients[i], layouts.state(i)
        if saved and saved.nbytes != layout.nbytes:
            raise DamagedCheckpoint(f"client {i} has {saved.nbytes} bytes there, {layout.nbytes} here")
        restore_client(i, store.read(saved) if saved else None, layout)


def load_server_state(plan: RunPlan, algorithm: Algorithm, state: Mapping[str, np.ndarray]) -> None:
    """Loads the algorithm's arrays; raises DamagedCheckpoint if the state does not fit this run."""
    classes, clients = plan.dims[0], len(plan.clients)
    shapes = {
        "diverged": ((clients,), np.bool_),
        "latest.head_norms": ((clients, classes), np.float64),
        "best": ((2,), np.float64),
        "best_of_clients": ((clients,), np.float64),
    }
    for name, (shape, dtype) in shapes.items():
        if name not in state or state[name].shape != shape or state[name].dtype != dtype:
            raise DamagedCheckpoint(f"the server's {name} is not that of this run")
    own = {name.removeprefix("method."): state[name] for name in state if name.startswith("method.")}
    try:
        Codec(algorithm.download_arrays()).decode(state["download"])
        algorithm.load({name: torch.from_numpy(value) for name, value in own.items()})
    except (KeyError, ValueError, RuntimeError, TypeError, IndexError) as error:
        raise DamagedCheckpoint(f"the server's method cannot go on from there ({error})") from None
