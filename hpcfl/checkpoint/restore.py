"""Restores a run from the newest checkpoint that every rank can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hpcfl.checkpoint.store import CheckpointStore, DamagedCheckpoint, FileRange, Manifest, usable_manifests
from hpcfl.comm.communicator import Communicator
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.reader import Run
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.runtime.scheduling import ClientQueue
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.state import Layout
from hpcfl.training.step.options import StepOptions

RestoreClient = Callable[[int, np.ndarray, Layout], None]
"""Writes a client's saved state, which has this layout, into the arena."""


@dataclass(frozen=True)
class RestoredRun:
    """A restored checkpoint: its round, the server's state, and where the client states are on disk."""

    round: int
    state: Mapping[str, np.ndarray]
    clients: tuple[FileRange, ...]


def restore_run(
    comm: Communicator,
    plan: RunPlan,
    store: CheckpointStore,
    identity: str,
    log: Run | None,
    restore_client: RestoreClient,
    queue: ClientQueue,
    method: PrototypeMethod,
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
                _restore_clients(plan, store, manifest, restore_client, queue)
                if comm.is_server:
                    state = store.read_arrays(manifest.server)
                    check_server_state(plan, method, state)
            except DamagedCheckpoint as error:
                problem = str(error)
        problems = [each for each in comm.allgather_object(problem) if each]
        if manifest is not None and not problems:
            return RestoredRun(manifest.round, state, manifest.clients)
        warn(f"hpcfl: a checkpoint cannot be used ({problems[0]}); trying the one before")
    return None


def _restore_clients(
    plan: RunPlan,
    store: CheckpointStore,
    manifest: Manifest,
    restore_client: RestoreClient,
    queue: ClientQueue,
) -> None:
    """Copies the saved states of this rank's share of the clients into the arena."""
    if len(manifest.clients) != len(plan.clients):
        raise DamagedCheckpoint(f"it has {len(manifest.clients)} clients, the run {len(plan.clients)}")
    options = {name: StepOptions(channels_last=name in manifest.channels_last) for name in plan.architectures}
    layouts = ClientLayouts(plan, options)
    for i in queue.own_share():
        saved, layout = manifest.clients[i], layouts.state(i)
        if saved.nbytes != layout.nbytes:
            raise DamagedCheckpoint(f"client {i} has {saved.nbytes} bytes there, {layout.nbytes} here")
        restore_client(i, store.read(saved), layout)


def check_server_state(plan: RunPlan, method: PrototypeMethod, state: Mapping[str, np.ndarray]) -> None:
    """Loads the method's arrays; raises DamagedCheckpoint if the state does not fit this run."""
    (classes, features), clients = plan.dims, len(plan.clients)
    shapes = {
        "prototypes": ((classes, features), np.float32),
        "present": ((classes,), np.bool_),
        "diverged": ((clients,), np.bool_),
        "met": ((clients,), np.bool_),
        "latest.head_norms": ((clients, classes), np.float64),
        "best": ((2,), np.float64),
        "best_of_clients": ((clients,), np.float64),
    }
    for name, (shape, dtype) in shapes.items():
        if name not in state or state[name].shape != shape or state[name].dtype != dtype:
            raise DamagedCheckpoint(f"the server's {name} is not that of this run")
    try:
        method.load_arrays(state)
    except (KeyError, ValueError, RuntimeError, TypeError, IndexError) as error:
        raise DamagedCheckpoint(f"the server's method cannot go on from there ({error})") from None
