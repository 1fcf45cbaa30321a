"""One run on ranks that are connected, from the check of its log to its end. No torch until it starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcfl.checkpoint.store import CheckpointStore, checkpoint_directory
from hpcfl.comm.communicator import Communicator, ControlFlags
from hpcfl.config.identity import fingerprint
from hpcfl.data.prepared_file import verify_images
from hpcfl.engine.messages import exit_out_of_time, failure_reason
from hpcfl.engine.progress import ProgressLines
from hpcfl.errors import BadInput, RunFailed
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.existing_run import (
    COMMAND_NAMES,
    ExistingRun,
    OptionNames,
    default_log_path,
    find_existing_run,
)
from hpcfl.log.heartbeat import HeartbeatThread
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE, STOPPED
from hpcfl.runtime.lock import RunLock
from hpcfl.utils.files import absolute_path, make_parents

if TYPE_CHECKING:
    from hpcfl.engine.server import Server


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
    names: OptionNames = COMMAND_NAMES
    """How messages name the options of the command or of `hpcfl.train`."""


@dataclass(frozen=True)
class RunFiles:
    """The log of a run: its path, what it held before, and whether that is to be kept aside."""

    path: Path
    """Absolute."""
    name: Path
    """The path as it was given, for messages."""
    fresh: bool
    existing: ExistingRun


def run_federation(
    comm: Communicator, plan_or_problem: RunPlan | Exception, out: Path | None, fresh: bool, hooks: RunHooks
) -> int:
    """Runs a planned federation, or raises what is wrong with it, on every rank; returns the exit code."""
    plan = _common_plan(comm, plan_or_problem)
    name = path = default_log_path(plan.config) if out is None else out
    with comm.raise_on_all():
        path = absolute_path(name)
    display = hooks.make_display(plan.config.federation.rounds) if comm.is_server else None
    existing, lock = ExistingRun(), RunLock(path)
    try:
        with comm.raise_on_all():
            if display:
                make_parents(name)
                notes: list[str] = []
                existing = find_existing_run(name, plan, fresh, notes.append, hooks.names)
                if not existing.finished:
                    lock.acquire()
                    CheckpointStore(checkpoint_directory(path)).check()
                    hooks.on_start()
                    # once more: now no other job writes it
                    existing = find_existing_run(name, plan, fresh, lambda text: None, hooks.names)
                for note in notes:  # after the lock: before, a run that is refused would promise something
                    display.print(note)
        if comm.allgather_object(existing.finished)[0]:
            return DONE
        with comm.raise_on_all():
            if comm.local_rank == 0:  # the other ranks of this node then find the images in memory
                verify_images(plan.data)
        if display and comm.size > 1 and "torch" not in sys.modules:
            display.print(f"hpcfl: starting {comm.size} ranks")
        with display or nullcontext(), _heartbeat(path, comm, display):
            return _run(comm, plan, RunFiles(path, name, fresh, existing), hooks, display)
    finally:
        lock.release()


def _heartbeat(path: Path, comm: Communicator, display: ProgressLines | None) -> AbstractContextManager[Any]:
    """Returns rank 0's heartbeat, which also shows progress within a round; nothing on other ranks."""
    return HeartbeatThread(path, comm, display.show_heartbeat) if display else nullcontext()


def _common_plan(comm: Communicator, plan_or_problem: RunPlan | Exception) -> RunPlan:
    """Returns the plan; raises the problem of any rank, or that plans differ, on all ranks."""
    with comm.raise_on_all():
        if isinstance(plan_or_problem, Exception):
            raise plan_or_problem
    assert isinstance(plan_or_problem, RunPlan)
    with comm.raise_on_all():
        own = fingerprint(plan_or_problem.config), *sorted(plan_or_problem.checksums.items())
        if len(set(comm.allgather_object(own))) > 1:
            raise BadInput(
                "the ranks read different configurations, data, splits or code: start them all with the same"
            )
    return plan_or_problem


def _run(
    comm: Communicator, plan: RunPlan, files: RunFiles, hooks: RunHooks, display: ProgressLines | None
) -> int:
    """Assembles this rank's parts, runs the rounds, and closes the log."""
    with comm.raise_on_all():
        device = set_up_torch(plan.config.runtime, comm.local_rank)  # before torch is imported
    _check_device_types(comm, device.type)

    from hpcfl.engine.assemble import assemble
    from hpcfl.engine.rounds import run

    ctx, worker, server = assemble(comm, plan, device, files, hooks, display)
    if server and hooks.may_exit:
        server.deadline.start(partial(exit_out_of_time, server))
    flags = run(ctx, worker, server)
    if server and display:
        _close(server, files.name, flags, display)
    if ControlFlags.FAILED in flags:
        reason = (
            f"{failure_reason(server)}; log: {files.name}" if server else "the run failed: rank 0 says why"
        )
        raise RunFailed(reason)
    return STOPPED if ControlFlags.EARLY in flags else DONE


def _check_device_types(comm: Communicator, own: str) -> None:
    """Raises BadInput on all ranks if they have devices of different types."""
    with comm.raise_on_all():
        kinds = comm.allgather_object(own)
        if len(set(kinds)) > 1:
            ranks = ", ".join(f"{kind} on rank {kinds.index(kind)}" for kind in sorted(set(kinds)))
            raise BadInput(
                f"the ranks have different types of device ({ranks}), which fix the last bits of results: "
                "set runtime.device=cpu, or start ranks only where there is such a device"
            )


def _close(server: Server, name: Path, flags: ControlFlags, display: ProgressLines) -> None:
    """Closes the log and prints how the run ended."""
    server.deadline.cancel()
    server.log.close(server.status)
    if ControlFlags.FAILED not in flags:
        display.print(f"hpcfl: {server.summary()}; log: {name}")
    if ControlFlags.EARLY in flags:
        done = server.log.rounds_done
        display.print(f"hpcfl: stopped early; the same command goes on after round {done}")
