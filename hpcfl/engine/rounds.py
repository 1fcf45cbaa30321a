"""The round loop. Every rank calls `run`; it reads like the papers' algorithm boxes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from hpcfl.checkpoint.writer import CheckpointWriter
from hpcfl.comm.codec import PrototypeCodec
from hpcfl.comm.communicator import Communicator, ControlFlags
from hpcfl.comm.metrics_codec import decode_saved, encode_metrics, encode_saved
from hpcfl.engine.server import Server
from hpcfl.engine.stopwatch import Stopwatch
from hpcfl.engine.worker import Worker
from hpcfl.federation.participants import select_participants
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.methods.prototypes import Prototypes
from hpcfl.runtime.scheduling import ClientQueue, CostModel


def run(
    fed: RunPlan,
    method: PrototypeMethod,
    link: Communicator,
    wire: PrototypeCodec,
    roster: ClientQueue,
    costs: CostModel,
    worker: Worker,
    server: Server | None,
    saver: CheckpointWriter,
    asked_to_stop: Callable[[], bool],
    first: int = 0,
    new: Prototypes | None = None,
) -> ControlFlags:
    """Algorithm 2 of ProtoNorm with the refinement left open; returns the word that ended the run.

    Row t is complete after the broadcast that follows round t, so the last broadcast only closes the run. A
    run that is continued starts with round `first` and rank 0's prototypes `new`; its clients are in place.
    """
    watch = Stopwatch(link)
    settings = fed.config.federation
    shared, word, t = Prototypes.none(*fed.dims), ControlFlags.GO, first
    new = new or (method.start() if server else shared)
    while True:
        link.round = min(t + 1, settings.rounds)
        with watch.part("comm"):
            word, shared = _broadcast(link, wire, word, costs, shared, new)
        target = method.target(shared).to(worker.device)
        if t > first:
            with watch.part("evaluate"):
                if fed.config.evaluates(t - 1):
                    for i in roster.share():
                        worker.compare(i, target)
                saved = saver.take(wait=ControlFlags.STOP in word)
                _, reports = link.gather(
                    ControlFlags.GO, encode_metrics(*worker.take_reports(), wire.classes, saved)
                )
            if server:
                server.close_row(t - 1, reports, link, watch)
        if ControlFlags.SAVE in word:
            saver.open(t - 1)
            if server:
                server.keeper.open(t - 1, server.state(shared))
        if ControlFlags.STOP in word:
            if ControlFlags.SAVE in word:
                _save_now(link, roster, saver, server)
            return word
        participants = select_participants(fed.config.seed, t, settings.clients, settings.per_round)
        if server:
            server.open_row(t, participants, shared)
        saver.note(set(participants.tolist()) & set(roster.clients))
        with watch.part("train"):
            mine = roster.train(participants, costs.of_clients())
            packed = wire.pack_up(worker.update(t, i, target) for i in mine)
            asked = ControlFlags.SIGNAL if asked_to_stop() else ControlFlags.GO
            word, uploads = link.gather(asked, packed)
        with watch.part("evaluate"):  # while rank 0 refines
            if fed.config.evaluates(t):
                for i in roster.look():
                    worker.look(i)
        saver.rest(roster.share(), participants.tolist())
        if server:
            with watch.part("comm"):
                arrived = wire.unpack_up(uploads)
            with watch.part("refine"):
                new = server.refine(t, shared, arrived)
            word = server.verdict(t, word)
        t += 1


def _save_now(
    link: Communicator, roster: ClientQueue, saver: CheckpointWriter, server: Server | None
) -> None:
    """Completes a checkpoint after which no round follows."""
    saver.rest(roster.share(), ())
    _, told = link.gather(ControlFlags.GO, encode_saved(saver.take(wait=True)))
    if server:
        server.keeper.add([decode_saved(body) for body in told], server.log.write)


def _broadcast(
    link: Communicator,
    wire: PrototypeCodec,
    word: ControlFlags,
    costs: CostModel,
    shared: Prototypes,
    new: Prototypes,
) -> tuple[ControlFlags, Prototypes]:
    """Returns rank 0's word and global prototypes on every rank, and brings it rank 0's measured costs.

    Prototypes that all ranks have already do not travel again.
    """
    body = np.empty(0, dtype=np.uint8)
    if link.is_server:
        present_K = new.present_K.numpy()
        rows = wire.pack_down(present_K, new.value_KD.numpy()[present_K])
        body = np.concatenate([costs.measured_A.view(np.uint8), rows[:0] if new.equals(shared) else rows])
    word, body = link.broadcast(word, body)
    costs.rate_A[:] = body[: costs.rate_A.nbytes].view(np.float64)
    if not body[costs.rate_A.nbytes :].size:
        return word, shared
    present_K, value_RD = wire.unpack_down(body[costs.rate_A.nbytes :])
    value_KD = torch.zeros(wire.classes, wire.features)
    value_KD[torch.from_numpy(present_K)] = torch.from_numpy(value_RD.copy())
    return word, Prototypes(value_KD, torch.from_numpy(present_K))
