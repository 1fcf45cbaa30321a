"""`hpcfl study status`: the progress of a study and its estimated remaining time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from hpcfl.study.estimate import Estimate
from hpcfl.study.run_store import RunStore, count_states
from hpcfl.study.study_file import read_study
from hpcfl.utils.formatting import console, format_duration, format_percent, plural


def print_status(
    path: str, scale: str, settings: Sequence[str], out: str | None, ranks: int | None, show_all: bool
) -> None:
    """Prints one line per cell and one for the study."""
    study = read_study(path, scale, settings)
    store = RunStore(study.directory(out))
    progress = [store.progress(cell) for cell in study.cells]
    estimate = Estimate(study.cells, progress, ranks)
    unfinished = [i for i, cell_progress in enumerate(progress) if not cell_progress.is_over]
    seconds_left = {i: estimate.seconds_left(i) for i in unfinished}
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("cell", "state"):
        table.add_column(heading, overflow="fold")
    for heading in ("rounds", "accuracy", "s/round", "left"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    for i, (cell, cell_progress) in enumerate(zip(study.cells, progress, strict=True)):
        rounds = cell.config.federation.rounds if cell.config else 0
        summary, left = cell_progress.summary, seconds_left.get(i)
        if show_all or cell_progress.state != "finished":
            table.add_row(
                cell.name,
                cell_progress.state,
                f"{cell_progress.rounds}/{rounds}",
                format_percent(summary.accuracy),
                "–" if np.isnan(summary.seconds) else f"{summary.seconds:.3f}",
                "" if left is None else "?" if np.isnan(left) else format_duration(left),
                cell_progress.reason,
            )
    if table.row_count:
        console().print(table)
    estimates = [seconds for seconds in seconds_left.values() if not np.isnan(seconds)]
    total = f"; about {format_duration(sum(estimates))} left in one job" if estimates else ""
    states = count_states(each.state for each in progress)
    study.print_notes()
    print(f"{study.title}: {plural(len(progress), 'cell')}, {states}{total}")
    if problem := estimate.cannot_run(unfinished)[1]:
        print(problem)
