"""`hpcfl train` from its command line to its exit code, on every rank."""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hpcfl.comm.communicator import Communicator, open_communicator
from hpcfl.comm.launcher import OUTPUT_DELAY, Launcher, find_launcher, is_first_process
from hpcfl.config.loading import load_config
from hpcfl.engine.assemble import RunHooks, run_federation
from hpcfl.engine.progress import choose_display
from hpcfl.errors import Refused
from hpcfl.federation.run_plan import plan_run
from hpcfl.runtime.exit_handling import BAD_INPUT, LauncherWatchdog, StopSignals, run_guarded

T = TypeVar("T")


def launch_train(path: str | None, settings: Sequence[str], out: str | None, fresh: bool) -> int:
    """Runs the federation that the configuration describes and returns the exit code.

    The configuration is checked first, before torch and MPI are loaded; bad input under a launcher is
    raised on all ranks, so that one prints it and all end alike.
    """
    plan_or_problem = result_or_problem(lambda: plan_run(load_config(path, settings)))

    def body(comm: Communicator, launcher: Launcher | None, signals: StopSignals) -> int:
        hooks = RunHooks(lambda rounds: choose_display(rounds, launcher), lambda: signals.received)
        return run_federation(comm, plan_or_problem, Path(out) if out is not None else None, fresh, hooks)

    return run_on_ranks(body)


def result_or_problem(make: Callable[[], T]) -> T | Exception:
    """Returns what is made; under a launcher the problem, if any, to be raised when all ranks have met."""
    try:
        return make()
    except Exception as problem:
        if find_launcher() is None:
            raise
        return problem


def run_on_ranks(body: Callable[[Communicator, Launcher | None, StopSignals], int]) -> int:
    """Runs a command's part of this rank, with all that watches over it, and returns the exit code."""
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)  # prints where every thread stands
    launcher = find_launcher()
    try:
        comm = open_communicator(launcher)
    except Refused:
        if is_first_process():
            raise
        time.sleep(OUTPUT_DELAY)
        return BAD_INPUT
    if launcher is not None:
        LauncherWatchdog().start()
    with StopSignals(comm.is_server, open_mpi=launcher is not None and launcher.open_mpi is True) as signals:
        return run_guarded(comm, lambda: body(comm, launcher, signals))
