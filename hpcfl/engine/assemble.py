"""One run on ranks that have met: settled, assembled, run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcfl.checkpoint.store import CheckpointStore, FileRange, checkpoint_directory
from hpcfl.comm.communicator import Communicator, ControlFlags
from hpcfl.config.identity import fingerprint, identity
from hpcfl.data.prepared_file import verify_images
from hpcfl.engine.messages import (
    exit_out_of_time,
    failure_reason,
    prepare_checkpoint_directory,
    print_startup,
)
from hpcfl.engine.progress import ProgressLines
from hpcfl.errors import BadInput, RunFailed
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.existing_run import ExistingRun, default_log_path, find_existing_run
from hpcfl.log.heartbeat import HeartbeatThread
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE, STOPPED
from hpcfl.runtime.lock import RunLock

if TYPE_CHECKING:
    from hpcfl.log.reader import Run


@dataclass(frozen=True)
class RunHooks:
    """What a run finds around it."""

    screen: Callable[[int], ProgressLines]
    """What rank 0 shows, given the number of rounds."""
    asked: Callable[[], bool] = lambda: False
    """Whether this rank was asked to stop."""
    began: float = field(default_factory=time.time)
    """When the time that the run may take began."""
    begin: Callable[[], None] = lambda: None
    """Called on rank 0 once the run is this job's alone, before anything is done."""
    may_exit: bool = True
    """Whether a round that cannot end in time ends the process."""
    belongs: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the log that say what the run is part of."""


def run_federation(
    link: Communicator, checked: RunPlan | Exception, out: Path | None, fresh: bool, around: RunHooks
) -> int:
    """Runs a planned federation, or raises what is wrong with it, on every rank; returns the exit code.

    What may stop a run is settled before torch is loaded.
    """
    with link.agreed():
        if isinstance(checked, Exception):
            raise checked
    assert isinstance(checked, RunPlan)
    config = checked.config
    with link.agreed():
        if len(set(link.facts((fingerprint(config), *checked.checksums.values())))) > 1:
            raise BadInput(
                "the ranks read different configurations, data or splits: start them all with the same"
            )
    path = default_log_path(config) if out is None else out
    show = around.screen(config.federation.rounds) if link.is_server else None
    standing, lock = ExistingRun(), RunLock(path)
    try:
        with link.agreed():
            if show:
                standing = find_existing_run(path, checked, fresh, show.note)
                if not standing.finished:
                    lock.take()
                    around.begin()
                    standing = find_existing_run(
                        path, checked, fresh, lambda text: None
                    )  # nobody else writes it now
        if link.facts(standing.finished)[0]:
            return DONE
        with link.agreed():
            if link.local_rank == 0:  # the others of this node then find the images in memory
                verify_images(checked.data)
        if show and link.size > 1 and "torch" not in sys.modules:
            show.note(f"hpcfl: starting {link.size} ranks")
        with show or nullcontext(), HeartbeatThread(path, link) if show else nullcontext():
            return _assemble_and_run(link, checked, path, fresh, standing.log, around, show)
    finally:
        lock.release()


def _assemble_and_run(
    link: Communicator,
    fed: RunPlan,
    path: Path,
    fresh: bool,
    old: Run | None,
    around: RunHooks,
    show: ProgressLines | None,
) -> int:
    """Assembles this rank's parts, server or worker or both, and runs the rounds."""
    runtime = fed.config.runtime
    with link.agreed():
        device = set_up_torch(runtime, link.local_rank)

    from hpcfl.checkpoint.coordinator import CheckpointCoordinator
    from hpcfl.checkpoint.restore import before, restore_run
    from hpcfl.checkpoint.writer import CheckpointWriter
    from hpcfl.comm.codec import PrototypeCodec
    from hpcfl.engine.rounds import run
    from hpcfl.engine.server import Server
    from hpcfl.engine.worker import Worker
    from hpcfl.log.create import create_log
    from hpcfl.methods.prototype_method import build_method
    from hpcfl.models.costs import costs
    from hpcfl.models.pretrained import read_pretrained
    from hpcfl.runtime.placement import place_clients
    from hpcfl.runtime.scheduling import CostModel
    from hpcfl.training.step.options import all_step_options, describe_options

    known = (fed.architectures, fed.data.shape, *fed.dims)
    mine = None
    with link.agreed():  # counting FLOPs loads torch's compiler, a second of CPU time: rank 0 counts for all
        mine = costs(*known, fed.config.train.batch_size, runtime.inference_batch) if link.is_server else None
    counted = link.facts(mine)[0]
    pretrained: dict[str, Any] = {}
    with link.agreed():
        pretrained = read_pretrained(fed.config.models.pretrained, *known)
    link.meet(runtime.pretend_nodes, runtime.stall_minutes)
    cost = CostModel(
        [counted[client.architecture].flops * len(client.train) for client in fed.clients],
        [fed.architectures.index(client.architecture) for client in fed.clients],
    )
    chosen = all_step_options(runtime, device.type, fed.architectures)
    placed = place_clients(link, fed, cost, device, chosen)
    method = build_method(fed.recipe, fed.config, fed.dims, device, samples=int(fed.class_counts_MK.sum()))
    wire = PrototypeCodec(*fed.dims, counts=fed.recipe.sends_counts, mask_KD=method.mask_KD)
    store, token = CheckpointStore(checkpoint_directory(path)), link.facts(os.urandom(4).hex())[0]
    saver = CheckpointWriter(store.path, link.rank, token, lambda i: worker.state(i))
    worker = Worker(
        *(fed, method, device, chosen, placed.records, placed.arena, placed.roster.clients, pretrained),
        about_to_change=saver.before,
    )
    whose = identity(fed.config, *fed.checksums.values())
    note = show.note if show else lambda text: None
    resumed = restore_run(link, fed, store, whose, old, worker, placed.roster, method, note)
    if resumed is None:
        for i in placed.roster.share():
            worker.start(i)
        saver.note(placed.roster.clients)
    server = None
    with link.agreed():
        if show:
            where = placed.words() | {
                "device": str(device),
                "step": describe_options(chosen),
                **around.belongs,
            }
            done = resumed.round if resumed else -1
            # a finished run that cannot be extended is not given up for one that may never come so far
            kept = fresh or (old is not None and old.status == "finished" and resumed is None)
            rows = before(old, done, fed.config) if old and not kept else None
            log = create_log(path, kept, fed, link, counted, where, rows)
            prepare_checkpoint_directory(store, log, done)
            pieces: list[FileRange | None] = [*resumed.pieces] if resumed else [None] * len(fed.clients)
            last = tuple(name for name, way in chosen.items() if way.channels_last)
            keeper = CheckpointCoordinator(store, runtime, whose, last, token, pieces)
            deadline = Deadline(end_time(runtime.walltime_minutes, around.began))
            server = Server(fed, method, wire, log, placed.cores, cost, device, keeper, deadline, show.row)
            print_startup(show, fed, link, placed, device, old, resumed, log.kept)
            if around.may_exit:
                deadline.start(lambda: exit_out_of_time(server))
    first, new = (resumed.round + 1, server.load(resumed.state) if server else None) if resumed else (0, None)
    word = run(
        *(fed, method, link, wire, placed.roster, cost, worker, server, saver),
        *(around.asked, first, new),
    )
    if server and show:
        server.deadline.cancel()
        server.log.close(server.status)
        if ControlFlags.FAILED not in word:
            show.note(f"hpcfl: {server.summary()}; log: {path}")
    if ControlFlags.FAILED in word:
        raise RunFailed(
            f"{failure_reason(server)}; log: {path}" if server else "the run failed: rank 0 says why"
        )
    if ControlFlags.EARLY in word:
        if server and show:
            show.note(f"hpcfl: stopped early; the same command goes on after round {server.log.rounds_done}")
        return STOPPED
    return DONE
