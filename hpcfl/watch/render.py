"""The status of a run as a table and as lines of text, with warnings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from hpcfl.errors import printable
from hpcfl.log.heartbeat import Heartbeat
from hpcfl.log.reader import Run
from hpcfl.log.schema import ROUND_PARTS
from hpcfl.log.virtual_summary import describe_virtual, virtual_summary
from hpcfl.utils.formatting import format_duration, format_percent, format_ranges, plural
from hpcfl.watch.poller import RECENT
from hpcfl.watch.sparkline import sparkline
from hpcfl.watch.status import MIN_REPORTED_WAIT, RunStatus

NUM_SLOWEST = 4
"""How many of the slowest clients are listed."""
LABEL_WIDTH = 10
BAR_WIDTH = 30

Row = tuple[str, str, str]
"""Label, text and style."""


def render(status: RunStatus, path: Path, width: int) -> Table:
    """Returns the status as a table for a terminal of this width."""
    table = Table.grid(padding=(0, 1))
    text_width = max(width - LABEL_WIDTH - 2, 10)
    table.add_column(width=LABEL_WIDTH, no_wrap=True)
    table.add_column(width=text_width, overflow="fold")
    for label, text, style in rows(status, path, text_width):
        table.add_row(Text(label, "bold"), Text(printable(text), style))
    return table


def rows(status: RunStatus, path: Path, width: int) -> Iterator[Row]:
    """Yields the rows of the table; sparklines take at most `width` characters."""
    yield "run", str(path), ""
    if status.run is not None:
        yield "", headline(status.run), ""
        yield "status", _status(status), "bold"
        if status.within_round:
            yield "round", within_round(status.within_round), ""
    for label, text in warnings_of(status, path):  # at the top: a low terminal cuts off the end
        yield label, text, "" if label == "missing" and not status.overdue else "bold red"
    if status.run is not None and status.run.rounds_done:
        yield from _results(status.run, width)
        yield from _virtual(status.run)
        yield from _times(status.run)


def _results(run: Run, width: int) -> Iterator[Row]:
    yield "accuracy", accuracy(run), ""
    if line := sparkline(run["/round/accuracy"], width):
        yield "", line, "green"
    loss = run["/round/loss"]
    yield "loss", f"{loss[-1]:.4g}", ""
    if line := sparkline(loss, width):
        yield "", line, "cyan"
    if len(diverged := np.flatnonzero(run["/client/diverged"][-1])):
        yield "diverged", f"{plural(len(diverged), 'client')}: {format_ranges(diverged.tolist())}", "red"
    else:
        yield "diverged", "none", ""


def _virtual(run: Run) -> Iterator[Row]:
    if found := virtual_summary(run):
        for label, text in zip(("virtual", ""), describe_virtual(found), strict=True):
            yield label, text, ""


def _times(run: Run) -> Iterator[Row]:
    def recent(name: str) -> float:
        return float(run[f"/round/{name}"][-RECENT:].mean())

    parts = ", ".join(f"{part} {recent(f'seconds_{part}'):.3f}" for part in ROUND_PARTS)
    yield "a round", f"{recent('seconds'):.3f} s: {parts}", ""
    for row, (client, rank, seconds) in enumerate(slowest(run)):
        network = run["/clients/architecture"][client]
        yield "" if row else "slowest", f"client {client}, {network}, on rank {rank}: {seconds:.3f} s", ""


def headline(run: Run) -> str:
    """Returns the method, data, clients and ranks of a run in one line."""
    config = run.config
    nets = Counter(run["/clients/architecture"].tolist())
    part_of = f"{run.study}: " if run.study else ""
    return (
        f"{part_of}{config.method.name} on {config.data.name}, {plural(config.federation.clients, 'client')} "
        f"({', '.join(f'{n} {name}' for name, n in nets.items())}), {config.federation.per_round} per round; "
        f"{plural(int(run.attributes.get('ranks', 1)), 'rank')}"
    )


def accuracy(run: Run) -> str:
    """Returns the last evaluated accuracy and the best one, as text."""
    values = run["/round/accuracy"]
    evaluated = np.flatnonzero(~np.isnan(values))
    if not len(evaluated):
        return "not evaluated yet"
    last, best = int(evaluated[-1]), int(np.nanargmax(values))
    when = "now" if last == len(values) - 1 else f"in round {last + 1}"
    return f"{format_percent(values[last])} {when}, best {format_percent(values[best])} in round {best + 1}"


def slowest(run: Run) -> list[tuple[int, int, float]]:
    """Returns client, rank and seconds of the slowest clients, each in its last round among the recent."""
    latest = {}
    for seconds_M, rank_M in zip(run["/client/seconds"], run["/client/rank"], strict=True):
        for i in np.flatnonzero(~np.isnan(seconds_M)).tolist():
            latest[i] = (i, int(rank_M[i]), float(seconds_M[i]))
    return sorted(latest.values(), key=lambda entry: -entry[2])[:NUM_SLOWEST]


def _status(status: RunStatus) -> str:
    filled = BAR_WIDTH * status.rounds_completed // max(status.rounds, 1)
    bar = "━" * filled + "─" * (BAR_WIDTH - filled)
    assert status.run is not None
    again = status.run.status != "running" and status.heartbeat is not None and status.heartbeat.round == 0
    state = status.ended or ("starting again" if again else status.run.status)
    text = f"{state}, {status.rounds_completed} of {plural(status.rounds, 'round')}"
    left = status.seconds_per_round * (status.rounds - status.rounds_completed)
    if not (status.ended or status.silent or math.isnan(left)):
        text += f", {format_duration(left)} left{_clock(left)}"
    return f"{text} {bar}"


def within_round(heartbeat: Heartbeat) -> str:
    """Returns how far the current round is, in words and as a bar."""
    trained, selected = heartbeat.trained, heartbeat.selected
    filled = BAR_WIDTH * min(trained, selected) // selected
    text = f"{heartbeat.round}, {heartbeat.part}: {trained} of {plural(selected, 'client')} trained"
    return f"{text} {'━' * filled + '─' * (BAR_WIDTH - filled)}"


def _clock(left: float) -> str:
    """Returns the time of day in `left` seconds, on this machine's clock; nothing if it is years away."""
    if left > 1e8:
        return ""
    now = datetime.now()
    end = now + timedelta(seconds=left)
    return f", until {end:%H:%M}" if end.date() == now.date() else f", until {end:%Y-%m-%d %H:%M}"


def warnings_of(status: RunStatus, path: Path) -> Iterator[tuple[str, str]]:
    """Yields label and text of each warning."""
    if status.run is None and status.absent:
        more = "; rank 0 is starting" if status.alive else ""
        yield "waiting", f"{path} is not there yet{more}"
    elif status.absent:
        yield "log", f"{path} is not there: this is what it said {format_duration(status.log_age)} ago"
    elif status.problem is not None:
        old = f": this is what it said {format_duration(status.log_age)} ago" if status.run else ""
        yield "log", f"{status.problem}{old}"
    if status.seconds_unanswered >= MIN_REPORTED_WAIT:
        yield "late", f"the file system has not answered for {format_duration(status.seconds_unanswered)}"
    if status.seconds_waited:
        assert status.heartbeat is not None
        yield "missing", missing(status)
    if status.silent:
        silence = format_duration(status.seconds_unchanged)
        yield "silent", f"no sign of life for {silence}; if the job is gone, {CONTINUES}"
    if status.ended == "stopped":
        yield "stopped", f"early: {CONTINUES}"


CONTINUES = "the same command continues the run"


def missing(status: RunStatus) -> str:
    """Returns which ranks rank 0 waits for, and since when."""
    assert status.heartbeat is not None
    heartbeat = status.heartbeat
    names = f"{'ranks' if len(heartbeat.missing) > 1 else 'rank'} {format_ranges(heartbeat.missing)}"
    since = f"{datetime.fromtimestamp(heartbeat.since):%H:%M:%S}"
    phase = f"round {heartbeat.round}, {heartbeat.part}" if heartbeat.round else "at the start"
    waits = "waits" if status.alive else "waited last"
    return f"rank 0 {waits} for {names} since {since}, {format_duration(status.seconds_waited)} ({phase})"
