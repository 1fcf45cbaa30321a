"""A view in words: the rows of the picture, and remarks about what is not as it should be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from hpcfl.log.reader import Run
from hpcfl.log.schema import PARTS
from hpcfl.utils.formatting import format_duration, format_percent, plural
from hpcfl.watch.poller import RECENT
from hpcfl.watch.sparkline import sparkline
from hpcfl.watch.status import NOTICE, RunStatus

SLOWEST = 4
"""Clients that are named as the slowest."""
NAMED = 12
"""Ranks, or clients, that are named before the others are only counted."""
LABEL = 10
"""Columns of the labels."""
BAR = 30

Row = tuple[str, str, str]
"""Label, text and style."""


def render(view: RunStatus, path: Path, width: int) -> Table:
    """Returns the view as a table for a terminal of this width."""
    table = Table.grid(padding=(0, 1))
    room = max(width - LABEL - 2, 10)
    table.add_column(width=LABEL, no_wrap=True)
    table.add_column(width=room, no_wrap=True, overflow="ellipsis")
    for label, text, style in rows(view, path, room):
        table.add_row(Text(label, "bold"), Text(printable(text), style, no_wrap=True, overflow="ellipsis"))
    return table


def rows(view: RunStatus, path: Path, width: int) -> Iterator[Row]:
    """Yields the rows of the picture; blocks take at most `width` columns."""
    yield "run", str(path), ""
    if view.run is not None:
        yield "", headline(view.run), ""
        yield "status", _status(view), "bold"
    for label, text in warnings_of(view, path):  # above what a low terminal does not show
        yield label, text, "bold red"
    if view.run is not None and view.run.rounds_done:
        yield from _results(view.run, width)
        yield from _times(view.run)


def _results(run: Run, width: int) -> Iterator[Row]:
    yield "accuracy", accuracy(run), ""
    if line := sparkline(run["/round/accuracy"], width):
        yield "", line, "green"
    loss = run["/round/loss"]
    yield "loss", f"{loss[-1]:.4g}", ""
    if line := sparkline(loss, width):
        yield "", line, "cyan"
    if len(gone := np.flatnonzero(run["/client/diverged"][-1])):
        yield "diverged", f"{plural(len(gone), 'client')}: {format_ranges(gone.tolist())}", "red"
    else:
        yield "diverged", "none", ""


def _times(run: Run) -> Iterator[Row]:
    def recent(name: str) -> float:
        return float(run[f"/round/{name}"][-RECENT:].mean())

    parts = ", ".join(f"{part} {recent(f'seconds_{part}'):.3f}" for part in PARTS)
    yield "a round", f"{recent('seconds'):.3f} s: {parts}", ""
    for place, (client, rank, seconds) in enumerate(slowest(run)):
        network = run["/clients/architecture"][client]
        yield "" if place else "slowest", f"client {client}, {network}, on rank {rank}: {seconds:.3f} s", ""


def headline(run: Run) -> str:
    """Returns what runs, in a line."""
    config = run.config
    nets = Counter(run["/clients/architecture"].tolist())
    part_of = f"{run.study}: " if run.study else ""
    return (
        f"{part_of}{config.method.name} on {config.data.name}, {config.federation.clients} clients "
        f"({', '.join(f'{n} {name}' for name, n in nets.items())}), {config.federation.per_round} per round; "
        f"{plural(int(run.attributes.get('ranks', 1)), 'rank')}"
    )


def accuracy(run: Run) -> str:
    """Returns the last evaluated accuracy and the best one, in words."""
    values = run["/round/accuracy"]
    evaluated = np.flatnonzero(~np.isnan(values))
    if not len(evaluated):
        return "not evaluated yet"
    last, best = int(evaluated[-1]), int(np.nanargmax(values))
    when = "now" if last == len(values) - 1 else f"in round {last + 1}"
    return f"{format_percent(values[last])} {when}, best {format_percent(values[best])} in round {best + 1}"


def slowest(run: Run) -> list[tuple[int, int, float]]:
    """Returns client, rank and seconds of the slowest clients, each in the last recent round it was in."""
    found = {}
    for seconds_M, rank_M in zip(run["/client/seconds"], run["/client/rank"], strict=True):
        for i in np.flatnonzero(~np.isnan(seconds_M)).tolist():
            found[i] = (i, int(rank_M[i]), float(seconds_M[i]))
    return sorted(found.values(), key=lambda entry: -entry[2])[:SLOWEST]


def _status(view: RunStatus) -> str:
    filled = BAR * view.done // max(view.rounds, 1)
    bar = "━" * filled + "─" * (BAR - filled)
    assert view.run is not None
    again = view.run.status != "running" and view.heartbeat is not None and view.heartbeat.round == 0
    status = view.ended or ("starting again" if again else view.run.status)
    text = f"{status}, {view.done} of {view.rounds} rounds"
    left = view.pace * (view.rounds - view.done)
    if not (view.ended or view.silent or math.isnan(left)):
        text += f", {format_duration(left)} left{_clock(left)}"
    return f"{text} {bar}"


def _clock(left: float) -> str:
    """Returns when that will be, on this machine's clock; nothing where it is years away."""
    if left > 1e8:
        return ""
    now = datetime.now()
    end = now + timedelta(seconds=left)
    return f", until {end:%H:%M}" if end.date() == now.date() else f", until {end:%Y-%m-%d %H:%M}"


def warnings_of(view: RunStatus, path: Path) -> Iterator[tuple[str, str]]:
    """Yields, by label, what is not as it should be."""
    if view.run is None and view.absent:
        more = "; rank 0 is starting" if view.alive else ""
        yield "waiting", f"{path} is not there yet{more}"
    elif view.absent:
        yield "log", f"{path} is not there: this is what it said {format_duration(view.age)} ago"
    elif view.problem is not None:
        old = f": this is what it said {format_duration(view.age)} ago" if view.run else ""
        yield "log", f"{view.problem}{old}"
    if view.late >= NOTICE:
        yield "late", f"the file system has not answered for {format_duration(view.late)}"
    if view.waited:
        assert view.heartbeat is not None
        yield "missing", missing(view)
    if view.silent:
        yield "silent", f"no sign of life for {format_duration(view.quiet)}; if the job is gone, {CONTINUES}"
    if view.ended == "stopped":
        yield "stopped", f"early: {CONTINUES}"


CONTINUES = "the same command continues the run"


def missing(view: RunStatus) -> str:
    """Returns whom rank 0 waits for, and since when."""
    assert view.heartbeat is not None
    heartbeat = view.heartbeat
    names = f"{'ranks' if len(heartbeat.missing) > 1 else 'rank'} {format_ranges(heartbeat.missing)}"
    since = f"{datetime.fromtimestamp(heartbeat.since):%H:%M:%S}"
    where = f"round {heartbeat.round}, {heartbeat.part}" if heartbeat.round else "at the start"
    waits = "waits" if view.alive else "waited last"
    return f"rank 0 {waits} for {names} since {since}, {format_duration(view.waited)} ({where})"


def format_ranges(numbers: Iterable[int]) -> str:
    """Returns whole numbers as people write them, neighbours together: 1–4, 7 and 12 more."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [f"{a}" if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in spans[:NAMED]]
    left = sum(b - a + 1 for a, b in spans[NAMED:])
    return ", ".join(words) + (f" and {left} more" if left else "")


def printable(text: str) -> str:
    """Returns a text without what would command a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
