"""What rank 0 shows: a progress bar on a terminal, else one line per round."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from hpcfl.comm.launcher import Launcher
from hpcfl.errors import printable
from hpcfl.log.heartbeat import Heartbeat
from hpcfl.log.virtual_summary import DROPPED, format_seconds
from hpcfl.utils.formatting import format_bytes, format_percent, plural, print_line

MAX_SILENCE = 60.0
"""Seconds without a line after which a line says how far the round is."""
RECENT = 600.0
"""Seconds of which the bar's time left is an average."""
WIDE = 120
"""Columns of a terminal on which there is room for a bar."""


def describe_row(row: Mapping[str, Any]) -> str:
    """Returns a row in words: accuracy, seconds, participants, bytes."""
    parts = [
        f"accuracy {format_percent(float(row['/round/accuracy']))}",
        f"{row['/round/seconds']:.2f} s",
        plural(int(row["/round/participants"].sum()), "client"),
        f"up {format_bytes(row['/round/bytes_up'])}",
        f"down {format_bytes(row['/round/bytes_down'])}",
    ]
    if "/virtual/seconds" in row:
        parts.append(f"{format_seconds(row['/virtual/seconds'])} virtual")
        if dropped := int(np.isin(row["/virtual/status"], [*DROPPED]).sum()):
            parts.append(f"{dropped} not in time")
    if diverged := int(row["/client/diverged"].sum()):
        parts.append(f"{diverged} diverged")
    return "  ".join(parts)


def describe_heartbeat(heartbeat: Heartbeat) -> str:
    """Returns how many of a round's clients are trained, and what else rank 0 does."""
    if not heartbeat.round:
        return "starting"
    part = "" if heartbeat.part == "train" else f", {heartbeat.part}"
    return f"{heartbeat.trained}/{plural(heartbeat.selected, 'client')} trained{part}"


class ProgressLines:
    """One plain line per round, and one a minute within a longer round."""

    def __init__(self, rounds: int):
        self.rounds = rounds
        self.last_line = time.monotonic()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def print(self, text: str) -> None:
        self.last_line = time.monotonic()
        print_line(text)

    def show_row(self, t: int, row: Mapping[str, Any]) -> None:
        self.print(f"round {t + 1}/{self.rounds}  {describe_row(row)}")

    def show_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Shows progress within a round; called every few seconds, by a thread."""
        if time.monotonic() - self.last_line >= MAX_SILENCE:
            number = f"round {heartbeat.round}/{self.rounds}  " if heartbeat.round else ""
            self.print(number + describe_heartbeat(heartbeat))


class NoProgress(ProgressLines):
    """Shows nothing."""

    def print(self, text: str) -> None:
        pass

    def show_heartbeat(self, heartbeat: Heartbeat) -> None:
        pass


class ProgressBar(ProgressLines):
    """A progress bar of one line, drawn after each round and with each heartbeat."""

    def __init__(self, rounds: int, console: Console):
        super().__init__(rounds)
        console.show_cursor = lambda show=True: False  # type: ignore[method-assign]  # a kill must not lose it
        number = TextColumn("round {task.fields[number]}/{task.total}", table_column=Column(no_wrap=True))
        bar = [BarColumn(20)] if console.width >= WIDE else []
        description = TextColumn(
            "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        )
        left = TimeRemainingColumn(table_column=Column(no_wrap=True))
        clients = TextColumn("{task.fields[clients]}", table_column=Column(no_wrap=True))
        columns = (number, clients, *bar, description, left)
        self.progress = Progress(
            *columns, console=console, auto_refresh=False, expand=True, speed_estimate_period=RECENT
        )
        self.done, self.row = 0, ""
        """Rounds done, and the last of them in words."""
        self.completed: float = 0
        """Rounds done, with the share of clients trained in the current one."""
        self.task = self.progress.add_task("starting", total=rounds, number=0, clients="")

    def __enter__(self) -> ProgressLines:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._draw(self.done, "", self.row or "starting")
        self.progress.stop()

    def print(self, text: str) -> None:
        safe = printable(text, keep="\n")
        self.progress.console.print(safe, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def show_row(self, t: int, row: Mapping[str, Any]) -> None:
        self.done = self.completed = t + 1
        self.row = describe_row(row)
        self._draw(self.done, "", self.row)

    def show_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Shows how far the round is, before the last row."""
        if heartbeat.round:
            share = heartbeat.trained / max(heartbeat.selected, 1)
            self.completed = max(self.completed, heartbeat.round - 1 + share)
            self._draw(heartbeat.round, describe_heartbeat(heartbeat), self.row and f"last: {self.row}")

    def _draw(self, number: int, clients: str, description: str) -> None:
        self.progress.update(
            self.task,
            completed=self.completed,
            description=description,
            refresh=True,
            number=number,
            clients=clients,
        )


def choose_display(rounds: int, launcher: Launcher | None) -> ProgressLines:
    """Returns a bar for a terminal, else lines; Open MPI's mpirun passes on whole lines only."""
    terminal = None
    if os.environ.get("TERM", "dumb") == "dumb":
        return ProgressLines(rounds)
    if launcher is not None:
        terminal = None if launcher.open_mpi else _launcher_terminal()
    else:
        terminal = sys.stdout.fileno() if sys.stdout.isatty() else None
    if terminal is None:
        return ProgressLines(rounds)
    width = os.get_terminal_size(terminal).columns or 80
    if launcher is not None:
        os.close(terminal)
    return ProgressBar(rounds, Console(force_terminal=True, width=width))


def _launcher_terminal() -> int | None:
    """Returns the terminal that mpirun writes to, if this node can see it.

    A rank's own output is a pipe: only the launcher's standard output tells.
    """
    process = Path("/proc/self")
    try:
        while (parent := int(_status(process)["PPid"])) > 1:
            process = Path(f"/proc/{parent}")
            if any(name in _status(process)["Name"] for name in ("mpirun", "mpiexec", "prterun", "srun")):
                terminal = os.open(process / "fd" / "1", os.O_WRONLY | os.O_NOCTTY)
                if os.isatty(terminal):
                    return terminal
                os.close(terminal)
                return None
    except (OSError, KeyError, ValueError):
        pass
    return None


def _status(process: Path) -> dict[str, str]:
    lines = (process / "status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
