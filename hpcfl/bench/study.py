"""Seconds that a cell of a study takes beside its rounds."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np

from hpcfl.bench.job import Job, on_ranks, ranks_under
from hpcfl.log.reader import Run, read_log

TINY = """
[set]
data.samples_per_class = 200
federation.rounds = 2
models.features = 8
[[block]]
name = "tiny"
grid.seed = {seeds}
"""
SETTLED = 5
"""Cells after which everything is loaded."""
LIMIT = 1.0
"""Seconds that a cell may take beside its rounds."""


def bench_study(cells: int, ranks: int) -> int:
    """Prints the seconds from one cell's log to the next without its rounds, and the number of processes.

    The exit code is 1 if a cell takes longer than the limit or if processes were started anew.
    """
    with tempfile.TemporaryDirectory() as directory:
        study, out = Path(directory, "tiny.toml"), Path(directory, "out")
        study.write_text(TINY.format(seeds=list(range(cells))))
        processes: set[int] = set()
        with Job(on_ranks(ranks, "study", "run", study, "--out", out)) as job:
            for seed in range(cells):
                job.wait_for(f"hpcfl: tiny, cell {seed + 1} of {cells}")
                processes |= set(ranks_under(job.process.pid).values())
            job.finish()
        runs = [read_log(out / f"tiny-s{seed}.h5") for seed in range(cells)]
    beside, rounds = seconds_beside_rounds(runs)
    low, middle, high = np.quantile(beside, [0, 0.5, 1])
    print(
        f"{cells} cells on {ranks} ranks, {len(processes)} processes: a cell takes {middle:.2f} s beside its"
    )
    print(f"rounds, {low:.2f} to {high:.2f} ({rounds.mean():.2f} s of rounds)")
    return 0 if len(processes) == ranks and middle < LIMIT else 1


def seconds_beside_rounds(runs: list[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the seconds of the settled cells beside their rounds, and those of their rounds."""
    starts = np.array([datetime.fromisoformat(str(run.attributes["start"])).timestamp() for run in runs])
    rounds = np.array([run["/round/seconds"].sum() for run in runs])
    return (np.diff(starts) - rounds[:-1])[SETTLED:], rounds[SETTLED:]
