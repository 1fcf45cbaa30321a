"""What rank 0 shows: a progress bar on a terminal, else one line per round."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from hpcfl.comm.launcher import Launcher
from hpcfl.errors import printable
from hpcfl.utils.formatting import format_bytes, format_percent, print_line

WIDE = 100
"""Columns of a terminal on which there is room for a bar."""


def describe_row(row: Mapping[str, Any]) -> str:
    """Returns a row in words: accuracy, seconds, participants, bytes."""
    parts = [
        f"accuracy {format_percent(float(row['/round/accuracy']))}",
        f"{row['/round/seconds']:.2f} s",
        f"{int(row['/round/participants'].sum())} clients",
        f"up {format_bytes(row['/round/bytes_up'])}",
        f"down {format_bytes(row['/round/bytes_down'])}",
    ]
    if diverged := int(row["/client/diverged"].sum()):
        parts.append(f"{diverged} diverged")
    return "  ".join(parts)


class ProgressLines:
    """One plain line per round."""

    def __init__(self, rounds: int):
        self.rounds = rounds

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def print(self, text: str) -> None:
        print_line(text)

    def show_row(self, t: int, row: Mapping[str, Any]) -> None:
        self.print(f"round {t + 1}/{self.rounds}  {describe_row(row)}")


class NoProgress(ProgressLines):
    """Shows nothing."""

    def print(self, text: str) -> None:
        pass


class ProgressBar(ProgressLines):
    """A progress bar, drawn only after each round, so that an error stays the last line."""

    def __init__(self, rounds: int, console: Console):
        super().__init__(rounds)
        console.show_cursor = lambda show=True: False  # type: ignore[method-assign]  # a kill must not lose it
        number = TextColumn("round {task.completed}/{task.total}", table_column=Column(no_wrap=True))
        bar = [BarColumn(20)] if console.width >= WIDE else []
        description = TextColumn(
            "{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        )
        left = TimeRemainingColumn(table_column=Column(no_wrap=True))
        self.progress = Progress(
            number, *bar, description, left, console=console, auto_refresh=False, expand=True
        )
        self.task = self.progress.add_task("starting", total=rounds)

    def __enter__(self) -> ProgressLines:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def print(self, text: str) -> None:
        safe = printable(text, keep="\n")
        self.progress.console.print(safe, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def show_row(self, t: int, row: Mapping[str, Any]) -> None:
        self.progress.update(self.task, completed=t + 1, description=describe_row(row), refresh=True)


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
