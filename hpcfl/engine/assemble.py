"""Assembles one run on ranks that are connected: its parts on this rank, its log, its checkpoints."""

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
from hpcfl.log.existing_run import ExistingRun, default_log_path, earlier_rows, find_existing_run
from hpcfl.log.heartbeat import HeartbeatThread
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE, STOPPED
from hpcfl.runtime.lock import RunLock

if TYPE_CHECKING:
    from hpcfl.log.reader import Run


@dataclass(frozen=True)
class RunHooks:
    """Callbacks and limits that the caller of a run provides."""

    make_display: Callable[[int], ProgressLines]
    """Makes what rank 0 shows, given the number of rounds."""
    stop_requested: Callable[[], bool] = lambda: False
    """Says whether a signal asked this rank to stop."""
    started: float = field(default_factory=time.time)
    """When the job's time limit began to count, on the system's clock."""
    on_start: Callable[[], None] = lambda: None
    """Called on rank 0 when the run's lock is held, before any work."""
    may_exit: bool = True
    """Whether the process may exit when a round cannot end before the time limit."""
    log_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the log that name the study and the cell of this run."""


def run_federation(
    comm: Communicator, plan_or_problem: RunPlan | Exception, out: Path | None, fresh: bool, hooks: RunHooks
) -> int:
    """Runs a planned federation, or raises what is wrong with it, on every rank; returns the exit code.

    What may stop a run is settled before torch is loaded.
    """
    with comm.raise_on_all():
        if isinstance(plan_or_problem, Exception):
            raise plan_or_problem
    assert isinstance(plan_or_problem, RunPlan)
    config = plan_or_problem.config
    with comm.raise_on_all():
        if len(set(comm.allgather_object((fingerprint(config), *plan_or_problem.checksums.values())))) > 1:
            raise BadInput(
                "the ranks read different configurations, data or splits: start them all with the same"
            )
    path = default_log_path(config) if out is None else out
    display = hooks.make_display(config.federation.rounds) if comm.is_server else None
    existing, lock = ExistingRun(), RunLock(path)
    try:
        with comm.raise_on_all():
            if display:
                existing = find_existing_run(path, plan_or_problem, fresh, display.print)
                if not existing.finished:
                    lock.acquire()
                    hooks.on_start()
                    existing = find_existing_run(
                        path, plan_or_problem, fresh, lambda text: None
                    )  # nobody else writes it now
        if comm.allgather_object(existing.finished)[0]:
            return DONE
        with comm.raise_on_all():
            if comm.local_rank == 0:  # the others of this node then find the images in memory
                verify_images(plan_or_problem.data)
        if display and comm.size > 1 and "torch" not in sys.modules:
            display.print(f"hpcfl: starting {comm.size} ranks")
        with display or nullcontext(), HeartbeatThread(path, comm) if display else nullcontext():
            return _assemble_and_run(comm, plan_or_problem, path, fresh, existing.log, hooks, display)
    finally:
        lock.release()


def _assemble_and_run(
    comm: Communicator,
    plan: RunPlan,
    path: Path,
    fresh: bool,
    old: Run | None,
    hooks: RunHooks,
    display: ProgressLines | None,
) -> int:
    """Assembles this rank's parts, server or worker or both, and runs the rounds."""
    runtime = plan.config.runtime
    with comm.raise_on_all():
        device = set_up_torch(runtime, comm.local_rank)

    from hpcfl.checkpoint.coordinator import CheckpointCoordinator
    from hpcfl.checkpoint.restore import restore_run
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
    from hpcfl.training.client_layout import ClientLayouts
    from hpcfl.training.step.options import all_step_options, describe_options

    network_args = (plan.architectures, plan.data.shape, *plan.dims)
    mine = None
    with (
        comm.raise_on_all()
    ):  # rank 0 counts FLOPs for all: that loads torch's compiler, a second of CPU time
        mine = (
            costs(*network_args, plan.config.train.batch_size, runtime.inference_batch)
            if comm.is_server
            else None
        )
    network_costs = comm.allgather_object(mine)[0]
    pretrained: dict[str, Any] = {}
    with comm.raise_on_all():
        pretrained = read_pretrained(plan.config.models.pretrained, *network_args)
    comm.setup_nodes(runtime.pretend_nodes, runtime.stall_minutes)
    cost_model = CostModel(
        [network_costs[client.architecture].flops * len(client.train) for client in plan.clients],
        [plan.architectures.index(client.architecture) for client in plan.clients],
    )
    options = all_step_options(runtime, device.type, plan.architectures)
    with comm.raise_on_all():  # a user's network may be missing on one node
        layouts = ClientLayouts(plan, options)
    sizes = [layouts.layout(i).nbytes for i in range(len(plan.clients))]
    placement = place_clients(comm, runtime, cost_model, device, sizes)
    method = build_method(plan.spec, plan.config, plan.dims, device, samples=int(plan.class_counts_MK.sum()))
    codec = PrototypeCodec(*plan.dims, counts=plan.spec.sends_counts, mask_KD=method.mask_KD)
    store, token = CheckpointStore(checkpoint_directory(path)), comm.allgather_object(os.urandom(4).hex())[0]
    checkpoint_writer = CheckpointWriter(store.path, comm.rank, token, lambda i: worker.client_state(i))
    worker = Worker(
        *(
            plan,
            method,
            device,
            options,
            layouts,
            placement.arena,
            placement.queue.clients,
            pretrained,
        ),
        before_change=checkpoint_writer.save_before_change,
    )
    run_identity = identity(plan.config, *plan.checksums.values())
    print_line = display.print if display else lambda text: None
    restored = restore_run(
        comm, plan, store, run_identity, old, worker.restore_client, placement.queue, method, print_line
    )
    if restored is None:
        for i in placement.queue.own_share():
            worker.initialise(i)
        checkpoint_writer.mark_changed(placement.queue.clients)
    server = None
    with comm.raise_on_all():
        if display:
            hardware = placement.log_attributes() | {
                "device": str(device),
                "step": describe_options(options),
                **hooks.log_attributes,
            }
            done = restored.round if restored else -1
            # a finished run that cannot be extended is not given up for one that may never come so far
            keep_old = fresh or (old is not None and old.status == "finished" and restored is None)
            rows = earlier_rows(old, done, plan.config) if old and not keep_old else None
            log = create_log(path, keep_old, plan, comm, network_costs, hardware, rows)
            prepare_checkpoint_directory(store, log, done)
            ranges: list[FileRange | None] = [*restored.clients] if restored else [None] * len(plan.clients)
            last = tuple(name for name, each in options.items() if each.channels_last)
            checkpoints = CheckpointCoordinator(store, runtime, run_identity, last, token, ranges)
            deadline = Deadline(end_time(runtime.walltime_minutes, hooks.started))
            server = Server(
                plan,
                method,
                codec,
                log,
                placement.cores,
                cost_model,
                device,
                checkpoints,
                deadline,
                display.show_row,
            )
            print_startup(display, plan, comm, placement, device, old, restored, log.backup_path)
            if hooks.may_exit:
                deadline.start(lambda: exit_out_of_time(server))
    first, new = (
        (restored.round + 1, server.load(restored.state) if server else None) if restored else (0, None)
    )
    flags = run(
        *(plan, method, comm, codec, placement.queue, cost_model, worker, server, checkpoint_writer),
        *(hooks.stop_requested, first, new),
    )
    if server and display:
        server.deadline.cancel()
        server.log.close(server.status)
        if ControlFlags.FAILED not in flags:
            display.print(f"hpcfl: {server.summary()}; log: {path}")
    if ControlFlags.FAILED in flags:
        raise RunFailed(
            f"{failure_reason(server)}; log: {path}" if server else "the run failed: rank 0 says why"
        )
    if ControlFlags.EARLY in flags:
        if server and display:
            display.print(
                f"hpcfl: stopped early; the same command goes on after round {server.log.rounds_done}"
            )
        return STOPPED
    return DONE
