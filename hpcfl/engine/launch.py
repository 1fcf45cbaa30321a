"""`hpcfl train` from its command line to its exit code, on every rank."""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hpcfl.comm.communicator import Link, open_link
from hpcfl.comm.launcher import SETTLE, Launcher, launcher, speaks
from hpcfl.config.loading import load
from hpcfl.engine.assemble import Around, conduct
from hpcfl.engine.progress import screen
from hpcfl.errors import Refused
from hpcfl.federation.run_plan import plan
from hpcfl.runtime.exit_handling import BAD_INPUT, Signals, Watchdog, guarded

T = TypeVar("T")


def train(path: str | None, settings: Sequence[str], out: str | None, fresh: bool) -> int:
    """Runs the federation that the configuration describes and returns the exit code.

    The configuration is checked first, before torch and MPI are loaded; bad input under a launcher is
    agreed on by all ranks, so that one of them speaks and all end alike.
    """
    checked = attempted(lambda: plan(load(path, settings)))

    def body(link: Link, found: Launcher | None, signals: Signals) -> int:
        around = Around(lambda rounds: screen(rounds, found), lambda: signals.asked)
        return conduct(link, checked, Path(out) if out is not None else None, fresh, around)

    return on_all_ranks(body)


def attempted(make: Callable[[], T]) -> T | Exception:
    """Returns what is made; under a launcher the problem, if any, to be raised when all ranks have met."""
    try:
        return make()
    except Exception as problem:
        if launcher() is None:
            raise
        return problem


def on_all_ranks(body: Callable[[Link, Launcher | None, Signals], int]) -> int:
    """Runs a command's part of this rank, with all that watches over it, and returns the exit code."""
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)  # prints where every thread stands
    found = launcher()
    try:
        link = open_link(found)
    except Refused:
        if speaks():
            raise
        time.sleep(SETTLE)
        return BAD_INPUT
    if found is not None:
        Watchdog().start()
    with Signals(link.is_server, open_mpi=found is not None and found.open_mpi is True) as signals:
        return guarded(link, lambda: body(link, found, signals))
