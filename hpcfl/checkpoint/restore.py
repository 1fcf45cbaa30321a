"""From a run on disk to a run that goes on: the newest checkpoint that every rank can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hpcfl.checkpoint.store import CheckpointStore, DamagedCheckpoint, FileRange, Manifest, usable_manifests
from hpcfl.comm.communicator import Communicator
from hpcfl.config.schema import Config
from hpcfl.engine.worker import Worker
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.reader import Run
from hpcfl.log.schema import ENTRIES
from hpcfl.log.writer import EarlierRows
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.runtime.scheduling import ClientQueue
from hpcfl.training.client_layout import ClientLayouts
from hpcfl.training.step.options import StepOptions


@dataclass(frozen=True)
class RestoredRun:
    """Where a run goes on: after a round, with rank 0's state and everybody's pieces."""

    round: int
    state: Mapping[str, np.ndarray]
    clients: tuple[FileRange, ...]


def restore_run(
    comm: Communicator,
    plan: RunPlan,
    store: CheckpointStore,
    identity: str,
    log: Run | None,
    worker: Worker,
    queue: ClientQueue,
    method: PrototypeMethod,
    note: Callable[[str], None],
) -> RestoredRun | None:
    """Returns the newest checkpoint that all ranks can read, its clients in place; None: there is none."""
    rounds = plan.config.federation.rounds
    mine = list(usable_manifests(store, identity, log.rounds_done, rounds)) if comm.is_server and log else []
    for manifest, why in comm.allgather_object(mine)[0]:
        state: dict[str, np.ndarray] = {}
        problem = why
        if manifest is not None:
            try:
                _restore(plan, store, manifest, worker, queue)
                if comm.is_server:
                    state = store.read_arrays(manifest.server)
                    check_server_state(plan, method, state)
            except DamagedCheckpoint as error:
                problem = str(error)
        problems = [said for said in comm.allgather_object(problem) if said]
        if manifest is not None and not problems:
            return RestoredRun(manifest.round, state, manifest.clients)
        note(f"hpcfl: a checkpoint cannot be used ({problems[0]}); trying the one before")
    return None


def _restore(
    plan: RunPlan, store: CheckpointStore, manifest: Manifest, worker: Worker, queue: ClientQueue
) -> None:
    """Puts this rank's share of the clients in place."""
    if len(manifest.clients) != len(plan.clients):
        raise DamagedCheckpoint(f"it has {len(manifest.clients)} clients, the run {len(plan.clients)}")
    options = {name: StepOptions(channels_last=name in manifest.channels_last) for name in plan.architectures}
    layouts = ClientLayouts(plan, options)
    for i in queue.own_share():
        saved, layout = manifest.clients[i], layouts.state(i)
        if saved.nbytes != layout.nbytes:
            raise DamagedCheckpoint(f"client {i} has {saved.nbytes} bytes there, {layout.nbytes} here")
        worker.restore_client(i, store.read(saved), layout)


def check_server_state(plan: RunPlan, method: PrototypeMethod, state: Mapping[str, np.ndarray]) -> None:
    """Raises Damaged unless these are the arrays of a server of this run; the method then has its part."""
    (classes, features), clients = plan.dims, len(plan.clients)
    shapes = {
        "prototypes": ((classes, features), np.float32),
        "present": ((classes,), np.bool_),
        "diverged": ((clients,), np.bool_),
        "met": ((clients,), np.bool_),
        "norms": ((clients, classes), np.float64),
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


def earlier_rows(log: Run, round_: int, config: Config) -> EarlierRows:
    """Returns the rows of a log up to a round, as an undisturbed run would have them."""
    done = round_ + 1
    saved = log["/prototypes/saved_round"]
    keep = np.array([t < done and config.saves_prototypes(int(t)) for t in saved], dtype=bool)
    rows = {}
    for entry in ENTRIES:
        if entry.dims[0] == "round":
            rows[entry.path] = log[entry.path][:done]
        elif entry.dims[0] == "saved":
            rows[entry.path] = log[entry.path][keep]
    return EarlierRows(str(log.attributes["start"]), int(log.attributes["restarts"]) + 1, rows)
