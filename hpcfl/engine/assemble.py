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

from hpcfl.checkpoint.store import Piece, Store, directory
from hpcfl.comm.communicator import Link, Word
from hpcfl.config.identity import fingerprint, identity
from hpcfl.data.prepared_file import verify
from hpcfl.engine.messages import give_up, greet, make_room, reason
from hpcfl.engine.progress import Screen
from hpcfl.errors import BadInput, RunFailed
from hpcfl.federation.run_plan import Federation
from hpcfl.log.existing_run import Standing, default_path, settle
from hpcfl.log.heartbeat import Signer
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.devices import set_up
from hpcfl.runtime.exit_handling import DONE, STOPPED
from hpcfl.runtime.lock import RunLock

if TYPE_CHECKING:
    from hpcfl.log.reader import Run


@dataclass(frozen=True)
class Around:
    """What a run finds around it."""

    screen: Callable[[int], Screen]
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


def conduct(
    link: Link, checked: Federation | Exception, out: Path | None, fresh: bool, around: Around
) -> int:
    """Runs a planned federation, or raises what is wrong with it, on every rank; returns the exit code.

    What may stop a run is settled before torch is loaded.
    """
    with link.agreed():
        if isinstance(checked, Exception):
            raise checked
    assert isinstance(checked, Federation)
    config = checked.config
    with link.agreed():
        if len(set(link.facts((fingerprint(config), *checked.checksums.values())))) > 1:
            raise BadInput(
                "the ranks read different configurations, data or splits: start them all with the same"
            )
    path = default_path(config) if out is None else out
    show = around.screen(config.federation.rounds) if link.is_server else None
    standing, lock = Standing(), RunLock(path)
    try:
        with link.agreed():
            if show:
                standing = settle(path, checked, fresh, show.note)
                if not standing.finished:
                    lock.take()
                    around.begin()
                    standing = settle(path, checked, fresh, lambda text: None)  # nobody else writes it now
        if link.facts(standing.finished)[0]:
            return DONE
        with link.agreed():
            if link.local_rank == 0:  # the others of this node then find the images in memory
                verify(checked.data)
        if show and link.size > 1 and "torch" not in sys.modules:
            show.note(f"hpcfl: starting {link.size} ranks")
        with show or nullcontext(), Signer(path, link) if show else nullcontext():
            return _federate(link, checked, path, fresh, standing.log, around, show)
    finally:
        lock.release()


def _federate(
    link: Link,
    fed: Federation,
    path: Path,
    fresh: bool,
    old: Run | None,
    around: Around,
    show: Screen | None,
) -> int:
    """Assembles this rank's parts, server or worker or both, and runs the rounds."""
    runtime = fed.config.runtime
    with link.agreed():
        device = set_up(runtime, link.local_rank)

    from hpcfl.checkpoint.coordinator import Keeper
    from hpcfl.checkpoint.restore import before, resume
    from hpcfl.checkpoint.writer import Saver
    from hpcfl.comm.codec import Wire
    from hpcfl.engine.rounds import run
    from hpcfl.engine.server import Server
    from hpcfl.engine.worker import Worker
    from hpcfl.log.create import create
    from hpcfl.methods.prototype_method import compose
    from hpcfl.models.costs import costs
    from hpcfl.models.pretrained import read_pretrained
    from hpcfl.runtime.placement import place
    from hpcfl.runtime.scheduling import Costs
    from hpcfl.training.step.options import in_words, ways

    known = (fed.architectures, fed.data.shape, *fed.dims)
    mine = None
    with link.agreed():  # counting FLOPs loads torch's compiler, a second of CPU time: rank 0 counts for all
        mine = costs(*known, fed.config.train.batch_size, runtime.inference_batch) if link.is_server else None
    counted = link.facts(mine)[0]
    pretrained: dict[str, Any] = {}
    with link.agreed():
        pretrained = read_pretrained(fed.config.models.pretrained, *known)
    link.meet(runtime.pretend_nodes, runtime.stall_minutes)
    cost = Costs(
        [counted[client.architecture].flops * len(client.train) for client in fed.clients],
        [fed.architectures.index(client.architecture) for client in fed.clients],
    )
    chosen = ways(runtime, device.type, fed.architectures)
    placed = place(link, fed, cost, device, chosen)
    method = compose(fed.recipe, fed.config, fed.dims, device, samples=int(fed.class_counts_MK.sum()))
    wire = Wire(*fed.dims, counts=fed.recipe.sends_counts, mask_KD=method.mask_KD)
    store, token = Store(directory(path)), link.facts(os.urandom(4).hex())[0]
    saver = Saver(store.path, link.rank, token, lambda i: worker.state(i))
    worker = Worker(
        *(fed, method, device, chosen, placed.records, placed.arena, placed.roster.clients, pretrained),
        about_to_change=saver.before,
    )
    whose = identity(fed.config, *fed.checksums.values())
    note = show.note if show else lambda text: None
    resumed = resume(link, fed, store, whose, old, worker, placed.roster, method, note)
    if resumed is None:
        for i in placed.roster.share():
            worker.start(i)
        saver.note(placed.roster.clients)
    server = None
    with link.agreed():
        if show:
            where = placed.words() | {"device": str(device), "step": in_words(chosen), **around.belongs}
            done = resumed.round if resumed else -1
            # a finished run that cannot be extended is not given up for one that may never come so far
            kept = fresh or (old is not None and old.status == "finished" and resumed is None)
            rows = before(old, done, fed.config) if old and not kept else None
            log = create(path, kept, fed, link, counted, where, rows)
            make_room(store, log, done)
            pieces: list[Piece | None] = [*resumed.pieces] if resumed else [None] * len(fed.clients)
            last = tuple(name for name, way in chosen.items() if way.channels_last)
            keeper = Keeper(store, runtime, whose, last, token, pieces)
            deadline = Deadline(end_time(runtime.walltime_minutes, around.began))
            server = Server(fed, method, wire, log, placed.cores, cost, device, keeper, deadline, show.row)
            greet(show, fed, link, placed, device, old, resumed, log.kept)
            if around.may_exit:
                deadline.start(lambda: give_up(server))
    first, new = (resumed.round + 1, server.load(resumed.state) if server else None) if resumed else (0, None)
    word = run(
        *(fed, method, link, wire, placed.roster, cost, worker, server, saver),
        *(around.asked, first, new),
    )
    if server and show:
        server.deadline.cancel()
        server.log.close(server.status)
        if Word.FAILED not in word:
            show.note(f"hpcfl: {server.summary()}; log: {path}")
    if Word.FAILED in word:
        raise RunFailed(f"{reason(server)}; log: {path}" if server else "the run failed: rank 0 says why")
    if Word.EARLY in word:
        if server and show:
            show.note(f"hpcfl: stopped early; the same command goes on after round {server.log.rounds_done}")
        return STOPPED
    return DONE
