"""`hpcfl show` of several runs: their results side by side, what they differ in, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from hpcfl.config.identity import WITHOUT_EFFECT, differing
from hpcfl.log.reader import Run
from hpcfl.log.summary import INFERENCES, Summary, summary
from hpcfl.log.virtual_summary import format_seconds, virtual_summary
from hpcfl.report.records import make_record
from hpcfl.report.runs import by_inference, state_of, target_cells, virtual_cells
from hpcfl.report.series import make_settings
from hpcfl.report.verdict import make_verdict
from hpcfl.report.verdict_text import print_verdict
from hpcfl.report.wide_table import print_wide
from hpcfl.utils.formatting import console, format_bytes, format_percent, plural

MAX_NAMES = 3
"""How many runs with the same value of a key are named; more are counted."""
EXPLAINED_BY = {"data": ("data.",), "split": ("data.", "partition.", "federation.clients")}
"""Beginnings of the keys because of which data or splits differ anyway."""


def print_comparison(runs: Sequence[Run], target: float | None) -> None:
    """Prints the results of runs, every key in which they differ, and whether federation helped."""
    names = run_names(runs)
    _print_results(runs, names, target)
    _print_states(runs, names)
    _print_differences(runs, names)
    settings = make_settings([make_record(run) for run in runs])
    print_verdict(make_verdict([series for setting in settings for series in setting.series]))


def run_names(runs: Sequence[Run]) -> list[str]:
    """Returns the file names of runs; those that several runs share are whole paths."""
    counts = Counter(run.path.name for run in runs)
    names = [run.path.name if counts[run.path.name] == 1 else str(run.path) for run in runs]
    return [f"{name}, {run.study}" if run.study else name for name, run in zip(names, runs, strict=True)]


def _print_results(runs: Sequence[Run], names: Sequence[str], target: float | None) -> None:
    summaries = [summary(run) for run in runs]
    known = [name for name in INFERENCES if any(not np.isnan(by_inference(each)[name]) for each in summaries)]
    selects = any(not np.isnan(each.selected) for each in summaries)
    headings = ["run", "method", "rounds", "accuracy", "best", *(["selected"] if selects else []), *known]
    headings += ["up/round", "down/round", "s/round"]
    headings += [f"to {format_percent(target)}", "up", "down", "s"] if target is not None else []
    clocks = [virtual_summary(run) for run in runs]
    if any(clocks):
        headings += ["virtual", *(["virtual to it", "energy"] if target is not None else [])]
    rows = []
    for run, name, metrics, clock in zip(runs, names, summaries, clocks, strict=True):
        rounds = f"{run.rounds_done}"
        if state_of(run) != "finished":
            rounds += f" of {run.config.federation.rounds}"
        shares = _shares(metrics, selects, known)
        costs = ["–", "–", "–"]
        if run.rounds_done:
            sent = format_bytes(metrics.bytes_up), format_bytes(metrics.bytes_down)
            costs = [*sent, f"{metrics.seconds:.3f}"]
        reached = target_cells(run, target) if target is not None else []
        if any(clocks):
            reached.append(format_seconds(clock.seconds) if clock else "–")
            reached += virtual_cells(run, target) if target is not None else []
        rows.append([name, run.config.method.name, rounds, *shares, *costs, *reached])
    print_wide(headings, rows, text_columns=2)


def _shares(metrics: Summary, selects: bool, known: Sequence[str]) -> list[str]:
    """Returns the accuracies of a run that the table has, as text."""
    selected = [metrics.selected] if selects else []
    shares = metrics.accuracy, metrics.best, *selected, *(by_inference(metrics)[name] for name in known)
    return [format_percent(share) for share in shares]


def _print_states(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Prints which runs are not finished, and what they are instead."""
    states: dict[str, list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        if (state := state_of(run)) != "finished":
            states.setdefault(state, []).append(name)
    for state, found in states.items():
        console().print(f"{state}: {', '.join(found)}")


def _print_differences(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Prints every key in which the runs differ, with its values."""
    found = differing([run.config for run in runs])
    content = _differing_content(runs, found)
    screen = console()
    screen.print()
    if not found and not content:
        screen.print("These runs have the same configuration.")
        return
    screen.print("They differ in:")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for column in range(2):
        table.add_column(overflow="fold", no_wrap=not column)
    for key, values in sorted(found.items(), key=lambda pair: pair[0] in WITHOUT_EFFECT):
        note = " (without effect on results)" if key in WITHOUT_EFFECT else ""
        table.add_row(key, _values_by_run(values, names) + note)
    for name in content:
        table.add_row(name, "other content of the same name")
    screen.print(table)


def _values_by_run(values: Sequence[Any], names: Sequence[str]) -> str:
    """Returns the values of a key, each with the runs that have it: `0.1: a.h5; 0.5: b.h5, c.h5`."""
    by_value: dict[str, list[str]] = {}
    for value, name in zip(values, names, strict=True):
        by_value.setdefault("default" if value is None else str(value), []).append(name)
    return "; ".join(
        f"{value}: {', '.join(runs) if len(runs) <= MAX_NAMES else plural(len(runs), 'run')}"
        for value, runs in by_value.items()
    )


def _differing_content(runs: Sequence[Run], found: Mapping[str, Any]) -> list[str]:
    """Returns which data, split or modules of the user differ although no key says so."""
    checksums = dict.fromkeys(key for run in runs for key in run.attributes if key.startswith("checksum_"))
    names = []
    for key in checksums:
        name = key.removeprefix("checksum_")
        explained = any(other.startswith(EXPLAINED_BY.get(name, ())) for other in found)
        values = {run.attributes[key] for run in runs if key in run.attributes}
        if len(values) > 1 and not explained:
            names.append(name.replace("code_", "code of ", 1))
    return names
