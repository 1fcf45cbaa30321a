"""`hpcfl study status`: how far a study has come, and how long it will take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from hpcfl.study.estimate import Estimate
from hpcfl.study.run_store import RunStore, count_states
from hpcfl.study.study_file import read_study
from hpcfl.utils.formatting import console, format_duration, format_percent, plural


def print_status(
    path: str, scale: str, settings: Sequence[str], out: str | None, ranks: int | None, every: bool
) -> None:
    """Prints one line per cell, and the whole in a line."""
    study = read_study(path, scale, settings)
    store = RunStore(study.place(out))
    seen = [store.progress(cell) for cell in study.cells]
    estimate = Estimate(study.cells, seen, ranks)
    open_ = [at for at, progress in enumerate(seen) if not progress.is_over]
    left = {at: estimate.left(at) for at in open_}
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("cell", "state"):
        table.add_column(heading, overflow="fold")
    for heading in ("rounds", "accuracy", "s/round", "left"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    for at, (cell, progress) in enumerate(zip(study.cells, seen, strict=True)):
        of = cell.config.federation.rounds if cell.config else 0
        brief = progress.summary
        pace = "–" if np.isnan(brief.seconds) else f"{brief.seconds:.3f}"
        time = "" if at not in left else "?" if np.isnan(left[at]) else format_duration(left[at])
        if every or progress.state != "finished":
            table.add_row(
                *(
                    cell.name,
                    progress.state,
                    f"{progress.rounds}/{of}",
                    format_percent(brief.accuracy),
                    pace,
                    time,
                ),
                progress.reason,
            )
    if table.row_count:
        console().print(table)
    known = [seconds for seconds in left.values() if not np.isnan(seconds)]
    total = f"; about {format_duration(sum(known))} left in one job" if known else ""
    print(f"{study.title}: {plural(len(seen), 'cell')}, {count_states(each.state for each in seen)}{total}")
    if problem := estimate.cannot_run(open_)[1]:
        print(problem)
