"""The round loop. Every rank calls `run`; it reads like the papers' algorithm boxes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import numpy as np

from hpcfl.checkpoint.saved_client import decode_ids, decode_saved, encode_ids, encode_saved
from hpcfl.comm.communicator import ControlFlags
from hpcfl.engine.context import RunContext
from hpcfl.engine.rank_report import RankReport
from hpcfl.engine.server import Server
from hpcfl.engine.stopwatch import Stopwatch
from hpcfl.engine.worker import Worker
from hpcfl.exchange.codec import ClientUpload, decode_uploads, encode_uploads
from hpcfl.exchange.payload import Payload
from hpcfl.federation.participants import select_round


def run(ctx: RunContext, worker: Worker, server: Server | None) -> ControlFlags:
    """Runs the rounds; returns the flags that ended them.

    Row t is complete after the broadcast that follows round t, so the last broadcast only closes the run.
    """
    comm, config, queue, checkpoints = ctx.comm, ctx.plan.config, ctx.queue, ctx.checkpoint_writer
    settings, stopwatch = config.federation, Stopwatch(comm)
    flags, t = ControlFlags.GO, ctx.first_round
    current: Payload = {}
    while True:
        comm.round = min(t + 1, settings.rounds)
        with stopwatch.part("comm"):
            flags, new = _broadcast(ctx, flags, server)
            worker.round_start = time.perf_counter()
            if new is not None:
                current = new
                worker.receive(current)
        if t > ctx.first_round:
            with stopwatch.part("evaluate"):
                if config.evaluates(t - 1):
                    for i in queue.own_share(ctx.plan.evaluated_M):
                        worker.evaluate_download(t - 1, i)
                    worker.finish_evaluation()
                saved = checkpoints.pop_saved(wait=ControlFlags.STOP in flags)
                measured = worker.metrics.pop(), worker.features.pop()
                report = RankReport(worker.pop_cpu_seconds(), saved, *measured)
                _, reports = comm.gather(ControlFlags.GO, report.encode())
            if server:
                server.close_row(t - 1, reports, stopwatch)
        if ControlFlags.SAVE in flags:
            again = _clients_to_save_again(ctx, server)
            checkpoints.begin(t - 1, again & set(queue.clients))
            if server:
                server.checkpoints.begin(t - 1, again, server.state())
        if ControlFlags.STOP in flags:
            if ControlFlags.SAVE in flags:
                _finish_checkpoint(ctx, server)
            return flags
        selection = select_round(ctx.plan, t)
        trained = selection.trained
        comm.selected = len(trained)
        if server:
            server.open_row(t, selection, current)
        checkpoints.mark_changed(set(trained.tolist()) & set(queue.clients))
        with stopwatch.part("train"):
            mine = queue.to_train(trained, ctx.costs.of_clients())
            uploads = encode_uploads(ctx.upload_codec, _train(ctx, worker, t, mine))
            own_flags = ControlFlags.SIGNAL if ctx.stop_requested() else ControlFlags.GO
            flags, messages = comm.gather(own_flags, uploads)
            comm.trained = comm.round, comm.selected
            del uploads  # networks are large, and the next ones need the memory
        with stopwatch.part("evaluate"):  # while rank 0 aggregates
            if config.evaluates(t):
                for i in queue.to_evaluate(ctx.plan.evaluated_M):
                    worker.evaluate_network(t, i)
                worker.finish_evaluation()
        checkpoints.save_rest(queue.own_share(), trained.tolist())
        if server:
            with stopwatch.part("comm"):
                arrived = decode_uploads(ctx.upload_codec, messages)
            with stopwatch.part("refine"):
                server.aggregate(t, current, arrived)
            del arrived
            flags = server.next_flags(t, flags)
        del messages
        t += 1


def _train(ctx: RunContext, worker: Worker, t: int, clients: Iterable[int]) -> Iterator[ClientUpload]:
    """Yields the uploads of the clients that this rank trains; a checkpoint gets their old states first."""
    for number, i in enumerate(clients, start=1):
        ctx.checkpoint_writer.save_before_change(i)
        upload = worker.train_client(t, i)
        ctx.comm.count_trained(number)
        yield upload


def _clients_to_save_again(ctx: RunContext, server: Server | None) -> set[int]:
    """Returns on every rank the clients that rank 0 wants to have saved although they did not change."""
    chosen = server.checkpoints.choose_again() if server else ()
    return decode_ids(ctx.comm.broadcast(ControlFlags.GO, encode_ids(chosen))[1])


def _finish_checkpoint(ctx: RunContext, server: Server | None) -> None:
    """Completes a checkpoint after which no round follows."""
    ctx.checkpoint_writer.save_rest(ctx.queue.own_share(), ())
    _, messages = ctx.comm.gather(ControlFlags.GO, encode_saved(ctx.checkpoint_writer.pop_saved(wait=True)))
    if server:
        server.checkpoints.add_saved([decode_saved(message) for message in messages], server.log.write)


def _broadcast(
    ctx: RunContext, flags: ControlFlags, server: Server | None
) -> tuple[ControlFlags, Payload | None]:
    """Returns rank 0's flags and download on every rank, and updates its measured costs there.

    A download that all ranks have already is not sent again: then it is None.
    """
    body = server.pop_message() if server else np.empty(0, dtype=np.uint8)
    flags, body = ctx.comm.broadcast(flags, body)
    start = ctx.costs.header_bytes
    *rates, is_new = body[:start].view(np.float64)
    ctx.costs.rate_A[:] = rates
    return flags, ctx.download_codec.decode(body[start:]) if is_new else None
