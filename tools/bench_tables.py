"""Tables of the sparse-prototype paper and of FedSAP at small scale, with the papers' numbers beside.

tools/bench-tables sparse|sap|ssl [--seeds 3] [--jobs 2] [--out runs/tables] [--set KEY=VALUE]…

sparse  Table 1: FedProto and FedTGP with each of CPS, PPA, CPKD and all three; needs cifar40, the first 40
        classes of cifar100-20k (docs/methods/sparse.md has the command)
sap     Table 4: FedSAP with and without curriculum and proxy; needs cifar100-20k
ssl     Table 3: before and after the semi-supervised phase, and as many supervised rounds; needs cifar100-20k
Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_methods import accuracies, train

from hpcfl.log.reader import Run, read_log

NETS = "models.list=['cnn1','cnn2','cnn3','cnn4']"
LAST = 3
"""Rounds over which an accuracy is averaged."""

PARTS = {
    "– | – | –": (),
    "– | ✓ | –": ("method.aggregate=ppa",),
    "– | – | ✓": ("method.class_weights=proportional",),
    "50 | – | –": ("method.sparsity=50",),
    "250 | – | –": ("method.sparsity=250",),
    "50, own dimensions only | – | –": ("method.sparsity=50", "method.masked=always"),
    "250, own dimensions only | – | –": ("method.sparsity=250", "method.masked=always"),
    "50 | ✓ | ✓": ("method.sparsity=50", "method.aggregate=ppa", "method.class_weights=proportional"),
    "250 | ✓ | ✓": ("method.sparsity=250", "method.aggregate=ppa", "method.class_weights=proportional"),
}
PAPER_1 = {
    "fedproto": "29.97 1.46, 34.63 1.46, 33.03 1.46, 29.27 .15, 33.00 .73, – –, – –, 34.76 .15, 37.82 .73",
    "fedtgp": "36.92 1.46, 45.84 1.46, 39.10 1.46, 34.72 .15, 34.27 .73, – –, – –, 43.64 .15, 43.21 .73",
}
"""CIFAR-100: accuracy in % and million parameters a round, in the order of PARTS."""

SAP = (
    *("method.name=fedsap", "data.name=cifar100-20k", "models.list=['cnn2']", "train.batch_size=8"),
    *("train.momentum=0.5", "partition.name=nway_kshot", "method.own_classes=true"),
)


@dataclass(frozen=True)
class Row:
    """A line of a table: its first cells, its settings, the paper's numbers."""

    name: str
    cells: str
    settings: tuple[str, ...]
    paper: str = "–"


@dataclass(frozen=True)
class Table:
    heads: str
    paper: str
    rows: list[Row]
    figures: Callable[[Run], dict[str, float]]


def percent(run: Run, inference: str, at: int | None = None) -> float:
    """Returns an accuracy in percent over the last rounds up to `at`."""
    return float(accuracies(run, inference)[:at][-LAST:].mean())


def sparse() -> Table:
    fixed = ("data.name=cifar40", NETS, "models.features=500", "federation.rounds=12")
    rows = []
    for method, numbers in PAPER_1.items():
        for (cells, settings), paper in zip(PARTS.items(), numbers.split(", "), strict=True):
            if paper == "– –" and method != "fedproto":
                continue
            accuracy, cost = paper.split()
            name = f"{method}-{'-'.join(re.sub('[,|]', ' ', cells).split())}"
            rows.append(
                Row(
                    name,
                    f"{method} | {cells}",
                    (*fixed, f"method.name={method}", *settings),
                    f"{accuracy} | {cost}",
                )
            )

    def figures(run: Run) -> dict[str, float]:
        later = (run["/round/bytes_up"] + run["/round/bytes_down"])[1:].mean()
        return {
            "by global": percent(run, "global"),
            "best round": 100 * run["/round/accuracy"].max(),
            "by head": percent(run, "head"),
            "M parameters": later / 4e6,
            "personalisation": run["/round/personalisation"][-1],
            "largest cosine": run["/prototypes/cosine"][-1, 2],
            "dead": float(np.nanmean(run["/prototypes/dead"][-1])),
        }

    return Table("method | CPS | PPA | CPKD", "paper: accuracy | M parameters", rows, figures)


def sap() -> Table:
    fixed = (
        *(*SAP, "partition.ways=10.0", "partition.shots=20.0", "partition.deviation=4.0"),
        "federation.rounds=12",
    )
    curriculum = ("method.curriculum_start=3", "method.curriculum_end=12")
    rows = [
        Row("none", "– | –", (*fixed, "method.curriculum=constant", "method.proxy=0.0"), "79.70 | 79.91"),
        Row("curriculum", "✓ | –", (*fixed, *curriculum, "method.proxy=0.0"), "82.52 | 80.85"),
        Row("proxy", "– | ✓", (*fixed, "method.curriculum=constant"), "82.81 | 87.45"),
        Row("both", "✓ | ✓", (*fixed, *curriculum), "84.68 | 87.59"),
    ]

    def figures(run: Run) -> dict[str, float]:
        return {
            "by global": percent(run, "global"),
            "by head": percent(run, "head"),
            "silhouette": run["/round/silhouette"][-LAST:].mean(),
            "‖λ∇align‖ ÷ ‖∇CE‖, round 2": run["/round/gradient_align"][1],
            "last": run["/round/gradient_align"][-1],
        }

    return Table("curriculum | proxy", "paper: by global | by head", rows, figures)


SUPERVISED, REFINED = 12, 8


def ssl() -> Table:
    fixed = (
        *(*SAP, "partition.ways=5.0", "partition.shots=20.0", "partition.deviation=1.0"),
        *("partition.unlabelled=300", f"federation.rounds={SUPERVISED + REFINED}"),
        *("method.curriculum_start=3", f"method.curriculum_end={SUPERVISED}"),
    )
    rows = [
        Row("refined", "unlabelled samples", (*fixed, f"method.semi={SUPERVISED}")),
        Row("supervised", "labelled only", fixed),
    ]

    def figures(run: Run) -> dict[str, float]:
        found = {}
        for when, at in (("before", SUPERVISED), ("after", SUPERVISED + REFINED)):
            found[f"silhouette {when}"] = run["/round/silhouette"][:at][-LAST:].mean()
            found[f"by global {when}"] = percent(run, "global", at)
            found[f"by head {when}"] = percent(run, "head", at)
        taken = run["/round/accepted"][SUPERVISED:].mean() if run["/round/accepted"].any() else np.nan
        right = run["/round/pseudo_accuracy"][SUPERVISED:]
        return found | {"accepted": taken, "% right": 100 * right.mean()}

    return Table(f"rounds {SUPERVISED + 1} to {SUPERVISED + REFINED}", "paper", rows, figures)


def printed(table: Table, runs: Sequence[Sequence[Run]]) -> str:
    """Returns the table in Markdown: mean ± standard deviation over seeds."""
    first = table.figures(runs[0][0])
    heads = f"| {table.heads} | {' | '.join(first)} | {table.paper} |"
    lines = [heads, "|---" * (heads.count("|") - 1) + "|"]
    for row, seeds in zip(table.rows, runs, strict=True):
        found = np.array([list(table.figures(run).values()) for run in seeds])
        cells = []
        for values in found.T:
            if np.isnan(values).all():
                cells.append("–")
                continue
            digits = 1 if np.nanmax(values) > 5 else 2
            spread = values.std(ddof=min(1, len(values) - 1))
            cells.append(f"{values.mean():.{digits}f} ± {spread:.{digits}f}")
        lines.append(f"| {row.cells} | {' | '.join(cells)} | {row.paper} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=["sparse", "sap", "ssl"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/tables"))
    parser.add_argument("--set", action="append", default=[], dest="settings")
    asked = parser.parse_args()
    table = {"sparse": sparse, "sap": sap, "ssl": ssl}[asked.table]()
    asked.out.mkdir(parents=True, exist_ok=True)
    paths = [
        [asked.out / f"{asked.table}-{row.name}-{seed}.h5" for seed in range(asked.seeds)]
        for row in table.rows
    ]
    with ThreadPoolExecutor(asked.jobs) as pool:
        jobs = [
            pool.submit(train, path, [*row.settings, f"seed={seed}", *asked.settings])
            for row, seeds in zip(table.rows, paths, strict=True)
            for seed, path in enumerate(seeds)
        ]
    for job in jobs:
        job.result()
    print(printed(table, [[read_log(path) for path in seeds] for seeds in paths]))


if __name__ == "__main__":
    main()
