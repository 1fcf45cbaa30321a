"""Assembles the parts of a run on this rank: a worker, on rank 0 the server too, and what they share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hpcfl.algorithms.build import build_algorithm
from hpcfl.checkpoint.coordinator import CheckpointCoordinator
from hpcfl.checkpoint.restore import restore_run
from hpcfl.checkpoint.store import CheckpointStore, FileRange, checkpoint_directory, free_backup_path
from hpcfl.checkpoint.writer import CheckpointWriter
from hpcfl.comm.communicator import Communicator
from hpcfl.config.identity import identity
from hpcfl.engine.client_records import ClientRecords
from hpcfl.engine.context import RunContext
from hpcfl.engine.messages import print_startup
from hpcfl.engine.progress import ProgressLines
from hpcfl.engine.run import RunFiles, RunHooks
from hpcfl.engine.server import Server
from hpcfl.engine.virtual_clock import VirtualClock
from hpcfl.engine.worker import Worker
from hpcfl.exchange.codec import Codec
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.create import create_log
from hpcfl.log.existing_run import earlier_rows
from hpcfl.log.schema import run_metrics
from hpcfl.log.writer import LogWriter
from hpcfl.models.costs import Cost, costs
from hpcfl.models.pretrained import read_pretrained
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.device_memory import divide_memory
from hpcfl.runtime.placement import Placement, place_clients
from hpcfl.runtime.scheduling import CostModel
from hpcfl.training.client_layout import ClientLayouts, networks_of_clients
from hpcfl.training.step.options import all_step_options, describe_options


def assemble(
    comm: Communicator,
    plan: RunPlan,
    device: torch.device,
    files: RunFiles,
    hooks: RunHooks,
    display: ProgressLines | None,
) -> tuple[RunContext, Worker, Server | None]:
    """Returns the context, the worker and, on rank 0, the server of a run; its clients are in place."""
    runtime = plan.config.runtime
    networks: dict[str, tuple[str, ...]] = {}
    with comm.raise_on_all():  # a user's network may be missing on one node
        algorithm = build_algorithm(plan, device)
        networks = networks_of_clients(plan, algorithm)
        options = all_step_options(runtime, device.type, networks, plan.train.clip_norm)
        layouts = ClientLayouts(plan, algorithm, options)
    network_costs, pretrained = _networks(comm, plan, networks)
    algorithm.pretrained = pretrained
    comm.setup_nodes(runtime.pretend_nodes, runtime.stall_minutes)
    flops_M = [
        sum(network_costs[name].flops for name in networks[client.architecture]) for client in plan.clients
    ]
    cost_model = CostModel(
        [flops * len(client.train) for flops, client in zip(flops_M, plan.clients, strict=True)],
        [plan.architectures.index(client.architecture) for client in plan.clients],
    )
    sizes = [layouts.layout(i).nbytes for i in range(len(plan.clients))]
    placement = place_clients(comm, runtime, cost_model, device, sizes)
    queue, records = placement.queue, ClientRecords(plan, layouts, placement.arena)
    store, token = CheckpointStore(checkpoint_directory(files.path)), comm.allgather_object(_token())[0]
    checkpoint_writer = CheckpointWriter(store.path, comm.rank, token, records.state)
    warn = display.print if display else lambda text: None
    old, run_identity = files.existing.log, identity(plan.config, plan.checksums)
    restored = restore_run(comm, plan, store, run_identity, old, records.restore, queue, algorithm, warn)
    if restored is None:
        for i in queue.own_share():
            records.initialise(i, pretrained)
        if pretrained:  # their file may be gone when the run is continued
            checkpoint_writer.mark_changed(queue.clients)
    ctx = RunContext(
        plan=plan,
        algorithm=algorithm,
        device=device,
        step_options=options,
        records=records,
        device_memory=divide_memory(
            device, runtime.device_memory, placement.sharing, plan.data.x.nbytes + plan.data.y.nbytes
        ),
        comm=comm,
        download_codec=Codec(algorithm.download_arrays()),
        upload_codec=Codec(algorithm.upload_arrays()),
        queue=queue,
        costs=cost_model,
        checkpoint_writer=checkpoint_writer,
        cores=placement.cores,
        stop_requested=hooks.stop_requested,
        first_round=restored.round + 1 if restored else 0,
    )
    server = None
    with comm.raise_on_all():
        if display:
            is_lost = restored is None and (bool(store.manifests()) or (old and old.status == "finished"))
            log = _create_log(ctx, files, hooks, placement, network_costs, bool(is_lost))
            store.prepare(ctx.first_round - 1, log.backup_path)
            saved: list[FileRange | None] = [*restored.clients] if restored else [None] * len(plan.clients)
            last = tuple(name for name, each in options.items() if each.channels_last)
            state_bytes = [layouts.state(i).nbytes for i in range(len(plan.clients))]
            checkpoints = CheckpointCoordinator(store, runtime, run_identity, last, token, saved, state_bytes)
            if pretrained and restored is None:
                checkpoints.changed = set(range(len(plan.clients)))
            deadline = Deadline(end_time(runtime.walltime_minutes, hooks.started))
            clock = None
            if plan.system:
                wanted = plan.config.federation.per_round
                clock = VirtualClock(plan.system, ctx.upload_codec, algorithm, wanted, flops_M)
            server = Server(ctx, log, checkpoints, deadline, display.show_row, clock)
            print_startup(display, ctx, placement, old, log.backup_path)
            if restored:
                server.load(restored.state)
    return ctx, Worker(ctx, queue.clients), server


def _token() -> str:
    """Returns what tells the checkpoint files of this start from those of others."""
    return os.urandom(4).hex()


def _networks(
    comm: Communicator, plan: RunPlan, networks: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Cost], dict[str, dict[str, Tensor]]]:
    """Returns the costs of all networks, and the pretrained weights of the clients' own."""
    shapes = (plan.data.shape, *plan.dims)
    names = list(dict.fromkeys(name for together in networks.values() for name in together))
    batches = plan.config.train.batch_size, plan.config.runtime.inference_batch
    own: Any = None
    with comm.raise_on_all():  # rank 0 counts for all: that loads torch's compiler, a second of CPU time
        own = costs(names, *shapes, *batches, plan.data.input_type) if comm.is_server else None
    counted = comm.allgather_object(own)[0]
    pretrained: dict[str, dict[str, Tensor]] = {}
    with comm.raise_on_all():
        settings = plan.config.models.pretrained
        pretrained = read_pretrained(settings, plan.architectures, *shapes, plan.directory)
    return counted, pretrained


def _create_log(
    ctx: RunContext,
    files: RunFiles,
    hooks: RunHooks,
    placement: Placement,
    network_costs: Mapping[str, Cost],
    is_lost: bool,
) -> LogWriter:
    """Returns the log, with the rows so far of a run that is continued.

    A run whose checkpoints cannot be used is lost: its log is kept aside, as the new one may not come as far.
    """
    old, plan = files.existing.log, ctx.plan
    hardware = placement.log_attributes() | {
        "device": str(ctx.device),
        "step": describe_options(ctx.step_options),
        **hooks.log_attributes,
    }
    backup = free_backup_path(files.path) if files.fresh or (old and is_lost) else None
    earlier = None
    if old and not backup:
        earlier = earlier_rows(old, ctx.first_round - 1, plan.config, run_metrics(plan))
    return create_log(files.path, backup, plan, ctx.comm, network_costs, hardware, earlier)
