"""Connects the ranks of this start and runs a job on each: the one way in for commands and for Python."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar

from hpcfl.comm.communicator import Communicator, open_communicator, open_guest
from hpcfl.comm.launcher import OUTPUT_DELAY, Launcher, find_launcher, is_first_process
from hpcfl.comm.serial import SerialCommunicator
from hpcfl.config.loading import Source, is_read_once, load_config, tables_read_once
from hpcfl.engine.progress import ProgressLines, choose_display
from hpcfl.engine.run import RunHooks, run_federation
from hpcfl.errors import BadInput, Refused
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.existing_run import COMMAND_NAMES, PYTHON_NAMES, default_log_path
from hpcfl.runtime.devices import free_memory, preserve_torch_settings
from hpcfl.runtime.exit_handling import BAD_INPUT, LauncherWatchdog, StopSignals, run_guarded
from hpcfl.utils.files import absolute_path, preserve_working_directory

if TYPE_CHECKING:
    from hpcfl.comm.mpi import MPI

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """The connected ranks of a job, how they were started, and the signals that stop it."""

    comm: Communicator
    launcher: Launcher | None
    signals: StopSignals

    @property
    def stop_requested(self) -> bool:
        return self.signals.received


Job = Callable[[Session], int]
"""A rank's part of a job; returns the exit code."""


@dataclass(frozen=True)
class Embedding:
    """A job inside a Python program of the user: it raises instead of ending the processes."""

    mpi_comm: MPI.Intracomm | None = None
    """The communicator to work on; None: all ranks of the launcher, or this process alone."""
    make_display: Callable[[int], ProgressLines] = ProgressLines


def launch(job: Job, embedding: Embedding | None = None) -> int:
    """Connects the ranks, runs the job on each, and returns the exit code."""
    return _launch_command(job) if embedding is None else _launch_embedded(job, embedding.mpi_comm)


def _launch_command(job: Job) -> int:
    """Runs the job of a command: what goes wrong ends all ranks, with a message and an exit code."""
    launcher = find_launcher()
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)  # prints the stack of every thread
    try:
        comm = open_communicator(launcher)
    except Refused:
        if is_first_process():
            raise
        time.sleep(OUTPUT_DELAY)
        return BAD_INPUT
    if launcher is not None:
        LauncherWatchdog().start()
    with StopSignals(prints=comm.is_server, open_mpi=_is_open_mpi(launcher)) as signals:
        return run_guarded(comm, partial(job, Session(comm, launcher, signals)))


def _launch_embedded(job: Job, mpi_comm: MPI.Intracomm | None) -> int:
    """Runs the job inside a user's program: what goes wrong is raised, and torch's settings are restored."""
    launcher = find_launcher() if mpi_comm is None else None
    guest = open_guest(mpi_comm, launcher) if mpi_comm is not None or launcher is not None else None
    signals = StopSignals(prints=False, open_mpi=_is_open_mpi(launcher))
    handles_signals = mpi_comm is None and current_thread() is main_thread()
    with (
        guest.running() if guest else nullcontext(),
        signals if handles_signals else nullcontext(),
        preserve_torch_settings(),
        preserve_working_directory(),
    ):
        code = job(Session(guest or SerialCommunicator(), launcher, signals))
        free_memory()
    return code


def _is_open_mpi(launcher: Launcher | None) -> bool:
    return launcher is not None and launcher.open_mpi is True


def launch_train(config: str | None, settings: Sequence[str], out: str | None, fresh: bool) -> int:
    """Runs the federation that a configuration describes and returns the exit code."""
    return TrainJob(config, settings, out, fresh).launch()


class TrainJob:
    """One run: its plan is made first, before torch and MPI are loaded."""

    def __init__(
        self,
        config: Source,
        settings: Sequence[str],
        out: str | Path | None,
        fresh: bool,
        embedding: Embedding | None = None,
    ):
        shared = embedding is not None and embedding.mpi_comm is not None
        self.source, self.settings, self.said_as = (
            config,
            settings,
            "--set " if embedding is None else "settings: ",
        )
        self.fresh, self.embedding = fresh, embedding
        self.out = Path(out) if out is not None else None
        self.directory = str(out) if str(out).endswith(os.sep) else ""
        """A log that is given as a directory."""
        self.plan: RunPlan | Exception | None = None
        """None: the configuration comes from standard input or a pipe, which only rank 0 reads."""
        if not is_read_once(config) or (find_launcher() is None and not shared):
            self.plan = result_or_problem(lambda: self._make_plan(config), shared)
        self.is_server, self.log = False, Path()
        """`log` is the absolute path of the run's log, once it has started."""

    def launch(self) -> int:
        return launch(self._run, self.embedding)

    def _make_plan(self, source: Source) -> RunPlan:
        if self.directory:
            name = "--out" if self.embedding is None else "out ="
            raise BadInput(f"{name} {self.directory}: must be a file, for example {self.directory}run.h5")
        return plan_run(load_config(source, self.settings, self.said_as))

    def _run(self, session: Session) -> int:
        self.is_server = session.comm.is_server
        if self.plan is None:
            tables = tables_of_rank_0(session.comm, self.source)
            self.plan = result_or_problem(lambda: self._make_plan(tables), shared=True)
        if isinstance(self.plan, RunPlan):
            self.log = absolute_path(self.out or default_log_path(self.plan.config))
        make_display = partial(choose_display, launcher=session.launcher)
        hooks = RunHooks(
            make_display=self.embedding.make_display if self.embedding else make_display,
            stop_requested=lambda: session.stop_requested,
            may_exit=self.embedding is None,
            names=PYTHON_NAMES if self.embedding else COMMAND_NAMES,
        )
        return run_federation(session.comm, self.plan, self.out, self.fresh, hooks)


def tables_of_rank_0(comm: Communicator, source: Source) -> dict[str, Any]:
    """Returns on all ranks the tables that rank 0 reads. Collective."""
    tables: dict[str, Any] = {}
    with comm.raise_on_all():
        if comm.is_server:
            tables = tables_read_once(source)
    return comm.allgather_object(tables)[0]


def result_or_problem(make: Callable[[], T], shared: bool = False) -> T | Exception:
    """Returns what is made, or with several ranks the problem, to be raised once they are connected.

    `shared` says that there are several ranks although no launcher is known.
    """
    try:
        return make()
    except Exception as problem:
        if find_launcher() is None and not shared:
            raise
        return problem
