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

from hpcfl.log.reader import Run, read
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.show import INFERENCES

SETTINGS = ["data.name=cifar100-20k", "models.list=['cnn1','cnn2','cnn3','cnn4']", "federation.rounds=20"]
LAST = 5
"""Rounds over which a run's accuracy is averaged: single rounds jump by several points."""


def train(out: Path, settings: Sequence[str]) -> None:
    given = [part for setting in settings for part in ("--set", setting)]
    with out.with_suffix(".txt").open("w") as said:
        subprocess.run(
            [sys.executable, "-m", "hpcfl", "train", *given, "--out", str(out)],
            stdout=said,
            stderr=subprocess.STDOUT,
            check=True,
        )


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
    ]


HEADS = [
    *(f"by {name}" for name in INFERENCES),
    *("best round", "clients' best", "margin", "clients' margin", "largest cosine", "unreachable"),
    *("MB up", "MB down", "s refine"),
]
FORMS = [".1f"] * 5 + [".2f"] * 4 + [".2f"] * 3


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
        for seed in seeds:
            for name in methods:
                settings = [*SETTINGS, f"method.name={name}", f"seed={seed}", *asked.settings]
                pool.submit(train, asked.out / f"{name}-{seed}.h5", settings)
    print(f"| method | {' | '.join(HEADS)} |\n|---|{'---:|' * len(HEADS)}")
    for name in methods:
        rows = np.array([figures(read(asked.out / f"{name}-{seed}.h5")) for seed in seeds])
        cells = []
        for values, form in zip(rows.T, FORMS, strict=True):
            if np.isnan(values).all():
                cells.append("–")
            elif form == ".1f":
                cells.append(f"{values.mean():.1f} ± {values.std(ddof=min(1, len(values) - 1)):.1f}")
            else:
                cells.append(f"{values.mean():{form}}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
