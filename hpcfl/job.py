"""A run from its command line to its exit code, on every rank."""

from __future__ import annotations

import faulthandler
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcfl.comm.launcher import SETTLE, Launcher, launcher, speaks
from hpcfl.comm.link import Link, Word, open_link
from hpcfl.configfile import fingerprint, load
from hpcfl.data.prepared import verify
from hpcfl.devices import set_up
from hpcfl.errors import BadInput, Refused, RunFailed
from hpcfl.federation import Federation, plan
from hpcfl.guard import BAD_INPUT, DONE, Signals, Watchdog, guarded
from hpcfl.log.place import default_path, settle
from hpcfl.methods.rules import remarks
from hpcfl.screen import Screen, many, screen

if TYPE_CHECKING:
    from hpcfl.placement import Placed
    from hpcfl.server import Server


def train(path: str | None, settings: Sequence[str], out: str | None, fresh: bool) -> int:
    """Runs the federation that the configuration describes and returns the exit code.

    The configuration is checked first, before torch and MPI are loaded; bad input under a launcher is
    agreed on by all ranks, so that one of them speaks and all end alike.
    """
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)  # prints where every thread stands
    found = launcher()
    try:
        checked: Federation | Exception = plan(load(path, settings))
    except Exception as problem:
        if found is None:
            raise
        checked = problem  # raised once there is a link, so that the other ranks end too
    try:
        link = open_link(found)
    except Refused:
        if speaks():
            raise
        time.sleep(SETTLE)
        return BAD_INPUT
    if found is not None:
        Watchdog().start()
    signals = Signals(link.is_server, open_mpi=found is not None and found.open_mpi is True)
    with signals:
        return guarded(link, lambda: _prepare(link, found, checked, out, fresh, signals))


def _prepare(
    link: Link,
    found: Launcher | None,
    checked: Federation | Exception,
    out: str | None,
    fresh: bool,
    signals: Signals,
) -> int:
    """Settles with all ranks what may stop a run before torch is loaded."""
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
    path = default_path(config) if out is None else Path(out)
    show = screen(config.federation.rounds, found) if link.is_server else None
    finished = False
    with link.agreed():
        if show:
            finished = settle(path, checked, fresh, show.note)
    if link.facts(finished)[0]:
        return DONE
    with link.agreed():
        if link.local_rank == 0:  # the others of this node then find the images in memory
            verify(checked.data)
    if show and link.size > 1:
        show.note(f"hpcfl: starting {link.size} ranks")
    with show or nullcontext():
        return _federate(link, checked, path, fresh, signals, show)


def _federate(
    link: Link, fed: Federation, path: Path, fresh: bool, signals: Signals, show: Screen | None
) -> int:
    """Assembles this rank's parts, server or worker or both, and runs the rounds."""
    runtime = fed.config.runtime
    with link.agreed():
        device = set_up(runtime, link.local_rank)

    from hpcfl.comm.wire import Wire
    from hpcfl.log.opening import create
    from hpcfl.methods.method import compose
    from hpcfl.models.costs import costs
    from hpcfl.models.pretrained import read_pretrained
    from hpcfl.placement import place
    from hpcfl.rounds import run
    from hpcfl.schedule import Costs
    from hpcfl.server import Server
    from hpcfl.step.tune import in_words, ways
    from hpcfl.worker import Worker

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
    worker = Worker(
        fed, method, device, chosen, placed.records, placed.arena, placed.roster.clients, pretrained
    )
    server = None
    with link.agreed():
        if show:
            where = placed.words() | {"device": str(device), "step": in_words(chosen)}
            log = create(path, fresh, fed, link, counted, where)
            server = Server(fed, method, wire, log, placed.cores, cost, device, show.row)
            show.note(_headline(fed, link, placed, device))
            for remark in remarks(fed.recipe, *fed.dims, fed.config.federation.rounds):
                show.note(f"hpcfl: {remark}")
            if fed.unowned:
                show.note(f"hpcfl: classes that belong to no client: {', '.join(map(str, fed.unowned))}")
    word = run(fed, method, link, wire, placed.roster, cost, worker, server, lambda: signals.asked)
    if server and show:
        server.log.close(server.status)
        if Word.FAILED not in word:
            show.note(f"hpcfl: {server.summary()}; log: {path}")
    if Word.FAILED in word:
        raise RunFailed(f"{_reason(server)}; log: {path}" if server else "")
    return DONE


def _headline(fed: Federation, link: Link, placed: Placed, device: object) -> str:
    config = fed.config
    nets = Counter(client.architecture for client in fed.clients)
    crowded = (
        ", oversubscribed (results do not change)"
        if len(link.workers) * config.runtime.threads > placed.cores
        else ""
    )
    return (
        f"hpcfl: {config.method.name} on {config.data.name}, {len(fed.clients)} clients "
        f"({', '.join(f'{n} {name}' for name, n in nets.items())}), {config.federation.per_round} per round; "
        f"{many(link.size, 'rank')} on {many(placed.nodes, 'node')}, {many(placed.cores, 'core')}"
        f"{crowded}; {device}, {placed.placement}, {placed.arena.kind} arena"
        f"{f' ({placed.why})' if placed.why else ''}"
    )


def _reason(server: Server) -> str:
    done, rounds = server.log.rounds_done, server.fed.config.federation.rounds
    if server.status == "diverged" and not server.diverged_M.all():
        return f"the server's training diverged in round {done} of {rounds}; lower train.lr"
    if server.status == "diverged":
        return (
            f"every client diverged (loss or prototypes not finite) after round {done} of {rounds}; "
            "lower train.lr or method.weight"
        )
    return f"stopped by a signal after round {done} of {rounds}"
