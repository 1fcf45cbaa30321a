"""Runs at a glance, and the catalogue, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from hpcfl.log.reader import Run, as_bad_input, read_log
from hpcfl.log.schema import PARTS
from hpcfl.log.summary import INFERENCES, Summary, summary
from hpcfl.utils.formatting import console, format_bytes, format_percent


def print_runs(paths: Sequence[str]) -> None:
    """Prints one run in full, or several as rows of one table."""
    runs = [read_log(path) for path in paths]
    if len(runs) == 1:
        with as_bad_input(runs[0].path):
            _print_one(runs[0])
    else:
        _print_many(runs)


def _print_one(run: Run) -> None:
    config, said = run.config, run.attributes
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    add = table.add_row
    add("run", f"{run.path}: {run.status}, {run.rounds_done} of {config.federation.rounds} rounds")
    if run.study:
        add("study", f"{run.study}, cell {said['cell']}")
    add("when", f"{said['start']} to {said['end'] or '…'} on {said['host']}")
    add("ranks", f"{said['ranks']} (nodes {said['nodes']}, cores {said['cores']}, MPI {said['mpi']})")
    add("placed", f"{said['device']}, {said['placement']}, {said['arena']} arena")
    add("method", f"{config.method.name}: {said['method']}")
    add("data", f"{config.data.name}, {config.partition.name}, seed {config.seed}")
    nets = Counter(run["/clients/architecture"])
    add("clients", f"{config.federation.clients}: " + ", ".join(f"{n} {name}" for name, n in nets.items()))
    add("per round", f"{config.federation.per_round} clients")
    brief = summary(run)
    if not np.isnan(brief.accuracy):
        best = int(np.nanargmax(run["/round/accuracy"]))
        add(
            "accuracy",
            f"{format_percent(brief.accuracy)} (mean over clients {format_percent(brief.accuracy_clients)})",
        )
        own = f"clients at their own best {format_percent(brief.clients_best)}"
        add("best", f"{format_percent(brief.best)} in round {best + 1}; {own}")
        add("by", ", ".join(f"{name} {format_percent(share)}" for name, share in _by(brief).items()))
    if run.rounds_done:
        sent = {name: format_bytes(run[f"/round/bytes_{name}"].mean()) for name in ("up", "down", "mpi")}
        add("a round", f"up {sent['up']}, down {sent['down']}, MPI {sent['mpi']}")
        parts = ", ".join(f"{part} {run[f'/round/seconds_{part}'].mean():.3f}" for part in PARTS)
        add("", f"{run['/round/seconds'].mean():.3f} s: {parts}")
        add("", f"efficiency {run['/round/efficiency'].mean():.2f}")
        diverged = np.flatnonzero(run["/client/diverged"][-1])
        add("diverged", ", ".join(map(str, diverged)) if len(diverged) else "none")
    console().print(table)


def _print_many(runs: Sequence[Run]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("run")
    table.add_column("method")
    for heading in ("rounds", "accuracy", "best", *INFERENCES, "up/round", "down/round", "s/round"):
        table.add_column(heading, justify="right")
    for run in runs:
        brief = summary(run)
        cells = [*map(format_percent, (brief.accuracy, brief.best, *_by(brief).values())), "–", "–", "–"]
        if run.rounds_done:
            cells[5:] = format_bytes(brief.bytes_up), format_bytes(brief.bytes_down), f"{brief.seconds:.3f}"
        name = f"{run.path.name}, {run.study}" if run.study else run.path.name
        table.add_row(name, run.config.method.name, str(run.rounds_done), *cells)
    console().print(table)


def _by(brief: Summary) -> dict[str, float]:
    return dict(zip(INFERENCES, (brief.head, brief.global_, brief.local), strict=True))
