"""`hpcfl show` of runs: one in full, or several as rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from hpcfl.errors import BadInput
from hpcfl.log.reader import Run, as_bad_input, is_merged_file, read_log
from hpcfl.log.schema import ROUND_PARTS
from hpcfl.log.summary import INFERENCES, Summary, selected_round, summary
from hpcfl.log.virtual_summary import (
    describe_virtual,
    format_joules,
    format_seconds,
    virtual_summary,
)
from hpcfl.runtime.lock import is_locked
from hpcfl.utils.formatting import console, format_bytes, format_percent, plural, print_line


def print_runs(paths: Sequence[str], target: float | None = None) -> None:
    """Prints one run in full, or several as rows of one table; with what they needed to reach a target."""
    logs = [path for path in paths if len(paths) == 1 or not is_merged_file(path)]
    for path in paths:
        if path not in logs:
            print_line(f"passed over: {path} is a whole study; hpcfl show {Path(path).parent} shows it")
    if not logs:
        raise BadInput("all of these files are whole studies; show them one at a time")
    runs = [read_log(path, saved=False) for path in logs]
    if len(runs) == 1:
        with as_bad_input(runs[0].path):
            _print_one(runs[0], target)
    else:
        from hpcfl.report.comparison import print_comparison  # not loaded for a single run

        print_comparison(runs, target)


def _print_one(run: Run, target: float | None) -> None:
    config, attributes = run.config, run.attributes
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    add = table.add_row
    rounds = plural(config.federation.rounds, "round")
    add("run", f"{run.path}: {state_of(run)}, {run.rounds_done} of {rounds}")
    if run.study:
        add("study", f"{run.study}, cell {attributes['cell']}")
    add("when", f"{attributes['start']} to {attributes['end'] or '…'} on {attributes['host']}")
    machine = f"nodes {attributes['nodes']}, cores {attributes['cores']}, MPI {attributes['mpi']}"
    add("ranks", f"{attributes['ranks']} ({machine})")
    add("placed", f"{attributes['device']}, {attributes['placement']}, {attributes['arena']} arena")
    add("method", f"{config.method.name}: {attributes['method']}")
    add("data", f"{config.data.name}, {config.partition.name}, seed {config.seed}")
    architectures = ", ".join(f"{n} {name}" for name, n in Counter(run["/clients/architecture"]).items())
    add("clients", f"{config.federation.clients}: {architectures}")
    add("per round", plural(config.federation.per_round, "client"))
    metrics = summary(run)
    if not np.isnan(metrics.accuracy):
        best = int(np.nanargmax(run["/round/accuracy"]))
        mean = f"mean over clients {format_percent(metrics.accuracy_clients)}"
        add("accuracy", f"{format_percent(metrics.accuracy)} ({mean})")
        clients_best = f"clients at their own best {format_percent(metrics.clients_best)}"
        add("best", f"{format_percent(metrics.best)} in round {best + 1}; {clients_best}")
        if (chosen := selected_round(run)) is not None:
            selects = f"selects round {chosen + 1} by {format_percent(metrics.validation)}"
            add("validation", f"{selects}; test accuracy there {format_percent(metrics.selected)}")
        shares = {name: share for name, share in by_inference(metrics).items() if not np.isnan(share)}
        add("by", ", ".join(f"{name} {format_percent(share)}" for name, share in shares.items()))
    if not np.isnan(metrics.train):
        add("training", f"{format_percent(metrics.train)} by head, in the batches of the last round")
    if target is not None:
        add(f"to {format_percent(target)}", describe_target(run, target))
    if run.rounds_done:
        sent = {name: format_bytes(run[f"/round/bytes_{name}"].mean()) for name in ("up", "down", "mpi")}
        add("a round", f"up {sent['up']}, down {sent['down']}, MPI {sent['mpi']}")
        parts = ", ".join(f"{part} {run[f'/round/seconds_{part}'].mean():.3f}" for part in ROUND_PARTS)
        add("", f"{run['/round/seconds'].mean():.3f} s: {parts}")
        add("", f"efficiency {run['/round/efficiency'].mean():.2f}")
        if found := virtual_summary(run):
            add("virtual", describe_virtual(found)[0])
            add("", describe_virtual(found)[1])
        diverged = np.flatnonzero(run["/client/diverged"][-1])
        add("diverged", ", ".join(map(str, diverged)) if len(diverged) else "none")
    console().print(table)


def state_of(run: Run) -> str:
    """Returns finished, diverged, stopped, running, or unfinished: no job writes the log any more."""
    return "unfinished" if run.status == "running" and not is_locked(run.path) else run.status


def target_cells(run: Run, target: float) -> list[str]:
    """Returns the rounds, bytes up and down, and seconds that a run needed to reach an accuracy."""
    if (reached := run.to_target(target)) is None:
        return ["–"] * 4
    sent = format_bytes(reached.bytes_up), format_bytes(reached.bytes_down)
    return [str(reached.rounds), *sent, f"{reached.seconds:.1f}"]


def virtual_cells(run: Run, target: float) -> list[str]:
    """Returns the virtual seconds and joules that a run needed to reach an accuracy."""
    reached = run.to_target(target)
    seconds, joules = (reached.virtual_seconds, reached.joules) if reached else (None, None)
    return [
        "–" if seconds is None else format_seconds(seconds),
        "–" if joules is None else format_joules(joules),
    ]


def describe_target(run: Run, target: float) -> str:
    """Returns all of them in words."""
    rounds, up, down, seconds = target_cells(run, target)
    if rounds == "–":
        return "not reached"
    virtual = [
        f"{cell}{word}" for cell, word in zip(virtual_cells(run, target), (" virtual", ""), strict=True)
    ]
    known = [text for text in virtual if not text.startswith("–")]
    return ", ".join([f"round {rounds}: up {up}, down {down}, {seconds} s", *known]) + " until then"


def by_inference(metrics: Summary) -> dict[str, float]:
    """Returns the accuracy by kind of inference."""
    return dict(zip(INFERENCES, (metrics.head, metrics.global_, metrics.local, metrics.trained), strict=True))
