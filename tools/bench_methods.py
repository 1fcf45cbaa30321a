"""Trains every method with every seed and prints a table of means ± standard deviations over seeds.

tools/bench-methods [--methods NAME,…] [--seeds 3] [--jobs 2] [--out runs/methods] [--set KEY=VALUE]…

Finished runs are not repeated. Without --set: cifar100-20k (prepared before), 20 clients, Dirichlet(0.1),
four small CNNs, d = 512, 20 rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hpcfl.log.reader import Run, read_log
from hpcfl.log.summary import INFERENCES
from hpcfl.methods.catalogue import CATALOGUE

SETTINGS = ["data.name=cifar100-20k", "models.list=['cnn1','cnn2','cnn3','cnn4']", "federation.rounds=20"]
LAST = 5
"""Rounds over which a run's accuracy is averaged: single rounds jump by several points."""


def train(out: Path, settings: Sequence[str]) -> None:
    given = [part for setting in settings for part in ("--set", setting)]
    with out.with_suffix(".txt").open("w") as said:
        command = [sys.executable, "-m", "hpcfl", "train", *given, "--out", str(out)]
        code = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT).returncode
    if code:
        raise SystemExit(f"{out.with_suffix('.txt')} says why this run failed")


def accuracies(run: Run, inference: str) -> np.ndarray:
    """Returns right answers ÷ test samples in percent, by round."""
    tests_M = run["/clients/test_samples"]
    return 100 * (run[f"/client/accuracy_{inference}"] * tests_M).sum(1) / tests_M.sum()


def mean_of_known(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def figures(run: Run) -> list[float]:
    """Returns the columns of the table."""
    return [
        *(accuracies(run, name)[-LAST:].mean() for name in INFERENCES),
        100 * run["/round/accuracy"].max(),
        100 * np.average(run["/client/best"][-1], weights=run["/clients/test_samples"]),
        mean_of_known(run["/prototypes/margin"][-1]),
        mean_of_known(run["/prototypes/margin_clients"][-1]),
        run["/prototypes/cosine"][-1][2],
        mean_of_known(run["/prototypes/unreachable"][-1]),
        run["/round/bytes_up"].mean() / 1e6,
        run["/round/bytes_down"].mean() / 1e6,
        run["/round/seconds_refine"].mean(),
        run["/round/seconds"].mean(),
    ]


HEADS = [
    *(f"by {name}" for name in INFERENCES),
    *("best round", "clients' best", "margin", "clients' margin", "largest cosine", "unreachable"),
    *("MB up", "MB down", "s refine", "s a round"),
]
SPREAD = 7
"""So many columns show their standard deviation."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", default=",".join(name for name in CATALOGUE))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--set", action="append", default=[], dest="settings")
    asked = parser.parse_args()
    methods, seeds = asked.methods.split(","), range(asked.seeds)
    asked.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        jobs = [
            pool.submit(
                train,
                asked.out / f"{name}-{seed}.h5",
                [*SETTINGS, f"method.name={name}", f"seed={seed}", *asked.settings],
            )
            for seed in seeds
            for name in methods
        ]
    for job in jobs:
        job.result()
    print(f"| method | {' | '.join(HEADS)} |\n|---|{'---:|' * len(HEADS)}")
    for name in methods:
        rows = np.array([figures(read_log(asked.out / f"{name}-{seed}.h5")) for seed in seeds])
        cells = []
        for column, values in enumerate(rows.T):
            spread = f" ± {values.std(ddof=min(1, len(values) - 1)):.1f}" if column < SPREAD else ""
            digits = 1 if spread else 2
            cells.append("–" if np.isnan(values).all() else f"{values.mean():.{digits}f}{spread}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
