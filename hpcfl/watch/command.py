"""`hpcfl watch`: polls a log and shows it until the run has ended."""

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

from hpcfl.errors import BadInput, printable
from hpcfl.log.reader import NotALog, Run
from hpcfl.runtime.exit_handling import DONE, FAILED, INTERRUPTED
from hpcfl.utils.formatting import format_percent, plural
from hpcfl.watch.poller import LogPoller, PollThread
from hpcfl.watch.render import accuracy, headline, render, warnings_of, within_round
from hpcfl.watch.status import RunStatus, StatusTracker

READ_TIMEOUT = 5.0
"""Seconds after which a file that cannot be read is an error; before, the file system may be slow."""
MAX_SILENCE = 60.0
"""Seconds without a line after which a line says how far the round is."""
EXIT_CODES = {"": DONE, "finished": DONE, "stopped": DONE, "diverged": FAILED}
"""Exit code by how the run ended; empty with --once if it has not ended."""


class Display(Protocol):
    """Shows the status of a run each time it is polled."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, status: RunStatus) -> None: ...


class TerminalDisplay:
    """A table that is redrawn in place on a terminal."""

    def __init__(self, path: Path, console: Console):
        self.path, self.console = path, console
        console.show_cursor = lambda show=True: False  # type: ignore[method-assign]  # a kill would leave it hidden
        self.live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Display:
        self.live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.live.stop()

    def show(self, status: RunStatus) -> None:
        self.live.update(render(status, self.path, self.console.width), refresh=True)


class LineDisplay:
    """One line per new round, one a minute within a longer one, and one per warning when it first applies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: Run | None = None
        self.was_absent = False
        """Whether there was no log at first, so that all its rows are new."""
        self.printed: set[str] = set()
        """Labels of the warnings that apply now and were printed."""
        self.last_line = time.monotonic()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, status: RunStatus) -> None:
        if status.run is None:
            self.was_absent = True
        elif status.run is not self.run:
            self._print_rows(status.run)
        warnings = warnings_of(status, self.path)
        lines = {label: text for label, text in warnings if label != "missing" or status.overdue}
        if status.ended and status.run:
            rounds = f"{status.rounds_completed} of {plural(status.rounds, 'round')}"
            lines = {"end": f"{status.ended}, {rounds}; accuracy {accuracy(status.run)}"} | lines
        for label, text in lines.items():
            if label not in self.printed:
                self._print(text)
        self.printed = set(lines)
        is_long = time.monotonic() - self.last_line >= MAX_SILENCE
        if is_long and status.within_round:
            self._print(f"round {within_round(status.within_round)}")

    def _print_rows(self, run: Run) -> None:
        """Prints the rounds that are new since the last log; of a run found at the start only the last."""
        before, self.run = self.run, run
        if before is None or before.attributes["start"] != run.attributes["start"]:
            self._print(headline(run))
            first = 0 if before or self.was_absent else run.rounds_done - 1
        elif before.attributes["restarts"] != run.attributes["restarts"]:
            self._print(f"continued: {plural(run.rounds_done, 'round')} so far")
            first = run.rounds_done
        else:
            first = before.rounds_done
        values = zip(
            *(run[f"/round/{name}"].tolist() for name in ("accuracy", "loss", "seconds")), strict=True
        )
        for t, (share, loss, seconds) in enumerate(values):
            if t >= first:
                rounds = run.config.federation.rounds
                metrics = f"accuracy {format_percent(share)}  loss {loss:.4g}  {seconds:.2f} s"
                self._print(f"round {t + 1}/{rounds}  {metrics}")

    def _print(self, text: str) -> None:
        self.last_line = time.monotonic()
        print(printable(text), flush=True)


def watch_run(name: str, interval: float, once: bool) -> int:
    """Shows a run until it has ended, or once; returns the exit code."""
    if math.isnan(interval):
        raise BadInput("--every nan: must be a number of seconds")
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{path} is a directory, not the log of a run")
    terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    console = Console(highlight=False, markup=False, emoji=False, width=None if terminal else 120)
    try:
        if once:
            return _once(path, console)
        return follow(path, interval, TerminalDisplay(path, console) if terminal else LineDisplay(path))
    except KeyboardInterrupt:
        return INTERRUPTED


def _once(path: Path, console: Console) -> int:
    poller, tracker = LogPoller(path), StatusTracker()
    status = tracker.update(poller(), 0.0)
    if status.run is None and not status.absent:  # a slow file system gets a second try
        time.sleep(1)
        status = tracker.update(poller(), 0.0)
    if status.run is None:
        raise status.problem or BadInput(f"cannot read {path}: No such file or directory")
    console.print(render(status, path, console.width))
    return EXIT_CODES.get(status.ended, FAILED)


def follow(path: Path, interval: float, display: Display) -> int:
    """Polls and shows a run until it has ended; returns the exit code.

    A run that is already stopped ends the watch at once. One that stops while it is watched is waited for,
    because its job may be queued again.
    """
    thread, tracker = PollThread(LogPoller(path)), StatusTracker()
    begin, was_running = time.monotonic(), False
    thread.start()
    with display:
        while True:
            start = time.monotonic()
            status = tracker.update(thread.request(interval), thread.pending_since)
            give_up = isinstance(status.problem, NotALog) or start - begin > READ_TIMEOUT
            if status.run is None and status.problem and give_up:
                raise status.problem
            display.show(status)
            was_running = was_running or (status.run is not None and not status.ended)
            if status.ended and not (status.ended == "stopped" and was_running):
                return EXIT_CODES.get(status.ended, FAILED)
            time.sleep(max(0.0, start + interval - time.monotonic()))
