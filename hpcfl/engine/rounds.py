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
    plan: RunPlan,
    method: PrototypeMethod,
    comm: Communicator,
    codec: PrototypeCodec,
    queue: ClientQueue,
    costs: CostModel,
    worker: Worker,
    server: Server | None,
    checkpoint_writer: CheckpointWriter,
    stop_requested: Callable[[], bool],
    first: int = 0,
    new: Prototypes | None = None,
) -> ControlFlags:
    """Algorithm 2 of ProtoNorm with the refinement left open; returns the word that ended the run.

    Row t is complete after the broadcast that follows round t, so the last broadcast only closes the run. A
    run that is continued starts with round `first` and rank 0's prototypes `new`; its clients are in place.
    """
    stopwatch = Stopwatch(comm)
    settings = plan.config.federation
    current, flags, t = Prototypes.none(*plan.dims), ControlFlags.GO, first
    new = new or (method.initial() if server else current)
    while True:
        comm.round = min(t + 1, settings.rounds)
        with stopwatch.part("comm"):
            flags, current = _broadcast(comm, codec, flags, costs, current, new)
        target = method.client_target(current).to(worker.device)
        if t > first:
            with stopwatch.part("evaluate"):
                if plan.config.evaluates(t - 1):
                    for i in queue.own_share():
                        worker.evaluate_global(i, target)
                saved = checkpoint_writer.pop_saved(wait=ControlFlags.STOP in flags)
                _, messages = comm.gather(
                    ControlFlags.GO, encode_metrics(*worker.pop_metrics(), codec.classes, saved)
                )
            if server:
                server.close_row(t - 1, messages, comm, stopwatch)
        if ControlFlags.SAVE in flags:
            checkpoint_writer.begin(t - 1)
            if server:
                server.checkpoints.begin(t - 1, server.state(current))
        if ControlFlags.STOP in flags:
            if ControlFlags.SAVE in flags:
                _save_now(comm, queue, checkpoint_writer, server)
            return flags
        participants = select_participants(plan.config.seed, t, settings.clients, settings.per_round)
        if server:
            server.open_row(t, participants, current)
        checkpoint_writer.mark_changed(set(participants.tolist()) & set(queue.clients))
        with stopwatch.part("train"):
            mine = queue.to_train(participants, costs.of_clients())
            packed = codec.pack_up(worker.train_client(t, i, target) for i in mine)
            own_flags = ControlFlags.SIGNAL if stop_requested() else ControlFlags.GO
            flags, uploads = comm.gather(own_flags, packed)
        with stopwatch.part("evaluate"):  # while rank 0 refines
            if plan.config.evaluates(t):
                for i in queue.to_evaluate():
                    worker.evaluate_local(i)
        checkpoint_writer.save_rest(queue.own_share(), participants.tolist())
        if server:
            with stopwatch.part("comm"):
                arrived = codec.unpack_up(uploads)
            with stopwatch.part("refine"):
                new = server.aggregate(t, current, arrived)
            flags = server.next_flags(t, flags)
        t += 1


def _save_now(
    comm: Communicator, queue: ClientQueue, checkpoint_writer: CheckpointWriter, server: Server | None
) -> None:
    """Completes a checkpoint after which no round follows."""
    checkpoint_writer.save_rest(queue.own_share(), ())
    _, messages = comm.gather(ControlFlags.GO, encode_saved(checkpoint_writer.pop_saved(wait=True)))
    if server:
        server.checkpoints.add_saved([decode_saved(body) for body in messages], server.log.write)


def _broadcast(
    comm: Communicator,
    codec: PrototypeCodec,
    flags: ControlFlags,
    costs: CostModel,
    current: Prototypes,
    new: Prototypes,
) -> tuple[ControlFlags, Prototypes]:
    """Returns rank 0's word and global prototypes on every rank, and brings it rank 0's measured costs.

    Prototypes that all ranks have already do not travel again.
    """
    body = np.empty(0, dtype=np.uint8)
    if comm.is_server:
        present_K = new.present_K.numpy()
        rows = codec.pack_down(present_K, new.value_KD.numpy()[present_K])
        body = np.concatenate([costs.measured_A.view(np.uint8), rows[:0] if new.equals(current) else rows])
    flags, body = comm.broadcast(flags, body)
    costs.rate_A[:] = body[: costs.rate_A.nbytes].view(np.float64)
    if not body[costs.rate_A.nbytes :].size:
        return flags, current
    present_K, value_RD = codec.unpack_down(body[costs.rate_A.nbytes :])
    value_KD = torch.zeros(codec.classes, codec.features)
    value_KD[torch.from_numpy(present_K)] = torch.from_numpy(value_RD.copy())
    return flags, Prototypes(value_KD, torch.from_numpy(present_K))
