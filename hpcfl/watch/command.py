"""`hpcfl watch`: looks, shows, and ends with the run."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from hpcfl.errors import BadInput
from hpcfl.log.reader import NotALog, Run
from hpcfl.runtime.exit_handling import DONE, FAILED, INTERRUPTED
from hpcfl.utils.formatting import format_percent
from hpcfl.watch.poller import LogPoller, PollThread
from hpcfl.watch.render import accuracy, headline, printable, render, warnings_of
from hpcfl.watch.status import SILENCE, RunStatus, StatusTracker

PATIENCE = 5.0
"""Seconds after which a file that cannot be read was never a log, and not only late."""
CODES = {"": DONE, "finished": DONE, "stopped": DONE, "diverged": FAILED}
"""The exit code by how the run ended; empty: it has not, and one picture was asked for."""


class Display(Protocol):
    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, view: RunStatus) -> None: ...


class TerminalDisplay:
    """The picture, drawn anew in its place."""

    def __init__(self, path: Path, console: Console):
        self.path, self.console = path, console
        console.show_cursor = lambda show=True: False  # type: ignore[method-assign]  # a kill must not lose it
        self.live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Display:
        self.live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.live.stop()

    def show(self, view: RunStatus) -> None:
        self.live.update(render(view, self.path, self.console.width), refresh=True)


class LineDisplay:
    """One plain line per new round, and one for each thing that is not as it should be, when it begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: Run | None = None
        self.waited = False
        """Whether there was no run at first, so that all its rows are new."""
        self.told: set[str] = set()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, view: RunStatus) -> None:
        if view.run is None:
            self.waited = True
        elif view.run is not self.run:
            self._rows(view.run)
        overdue = view.waited > max(SILENCE, 2 * view.pace)
        now = {label: text for label, text in warnings_of(view, self.path) if label != "missing" or overdue}
        if view.ended and view.run:
            done = f"{view.done} of {view.rounds} rounds"
            now = {"end": f"{view.ended}, {done}; accuracy {accuracy(view.run)}"} | now
        for label, text in now.items():
            if label not in self.told:
                self._say(text)
        self.told = set(now)

    def _rows(self, run: Run) -> None:
        before, self.run = self.run, run
        if before is None or before.attributes["start"] != run.attributes["start"]:
            self._say(headline(run))
            first = 0 if before or self.waited else run.rounds_done - 1
        elif before.attributes["restarts"] != run.attributes["restarts"]:
            self._say(f"continued: {run.rounds_done} rounds so far")
            first = run.rounds_done
        else:
            first = before.rounds_done
        values = zip(
            *(run[f"/round/{name}"].tolist() for name in ("accuracy", "loss", "seconds")), strict=True
        )
        for t, (right, loss, seconds) in enumerate(values):
            if t >= first:
                rounds = run.config.federation.rounds
                facts = f"accuracy {format_percent(right)}  loss {loss:.4g}  {seconds:.2f} s"
                self._say(f"round {t + 1}/{rounds}  {facts}")

    def _say(self, text: str) -> None:
        print(printable(text), flush=True)


def watch_run(name: str, every: float, once: bool) -> int:
    """Shows a run until it has ended, or once; returns the exit code."""
    if math.isnan(every):
        raise BadInput("--every nan: must be a number of seconds")
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{path} is a directory, not the log of a run")
    terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    console = Console(highlight=False, markup=False, emoji=False, width=None if terminal else 120)
    try:
        if once:
            return _once(path, console)
        return follow(path, every, TerminalDisplay(path, console) if terminal else LineDisplay(path))
    except KeyboardInterrupt:
        return INTERRUPTED


def _once(path: Path, console: Console) -> int:
    sight, memory = LogPoller(path), StatusTracker()
    view = memory.view(sight(), 0.0)
    if view.run is None and not view.absent:  # a late file system deserves a second look
        time.sleep(1)
        view = memory.view(sight(), 0.0)
    if view.run is None:
        raise view.problem or BadInput(f"cannot read {path}: No such file or directory")
    console.print(render(view, path, console.width))
    return CODES.get(view.ended, FAILED)


def follow(path: Path, every: float, display: Display) -> int:
    """Looks and shows until the run has ended; returns the exit code.

    A run that was stopped before is left at once; one that is stopped while it is watched is waited for: its
    job may be in the queue again.
    """
    eye, memory, began, moved = PollThread(LogPoller(path)), StatusTracker(), time.monotonic(), False
    eye.start()
    with display:
        while True:
            start = time.monotonic()
            view = memory.view(eye.ask(every), eye.asked)
            hopeless = isinstance(view.problem, NotALog) or start - began > PATIENCE
            if view.run is None and view.problem and hopeless:
                raise view.problem
            display.show(view)
            moved = moved or (view.run is not None and not view.ended)
            if view.ended and not (view.ended == "stopped" and moved):
                return CODES.get(view.ended, FAILED)
            time.sleep(max(0.0, start + every - time.monotonic()))
