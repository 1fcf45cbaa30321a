"""A study from Python: its results as arrays, and a figure of them.

The grid is in study.toml: three methods, four α, two seeds. The study takes about a minute on 3 ranks
and goes on where it was stopped; the figure takes a second.

    mpirun -n 3 hpcfl study run examples/study.toml --out runs/example-study
    python examples/study.py
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import hpcfl

DIRECTORY = Path("runs/example-study")


def main() -> None:
    if not DIRECTORY.is_dir():
        sys.exit(f"{DIRECTORY} is missing: run the study first, as {__file__} says")
    accuracies: dict[str, dict[float, list[float]]] = {}
    for cell in hpcfl.open_study(DIRECTORY):
        by_alpha = accuracies.setdefault(cell.values["method.name"], {})
        by_alpha.setdefault(cell.values["partition.alpha"], []).append(cell.accuracy[-1])
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for method, by_alpha in accuracies.items():
        alpha_A = sorted(by_alpha)
        accuracy_AS = np.array([by_alpha[alpha] for alpha in alpha_A])
        axes.errorbar(alpha_A, accuracy_AS.mean(1), accuracy_AS.std(1), marker="o", capsize=3, label=method)
        print(method, *(f"α = {a}: {mean:.2%}" for a, mean in zip(alpha_A, accuracy_AS.mean(1), strict=True)))
    axes.set(xscale="log", xlabel="α of the Dirichlet split", ylabel="accuracy after the last round")
    axes.legend()
    figure.savefig(DIRECTORY / "alpha.png", dpi=150)
    print(f"figure: {DIRECTORY / 'alpha.png'}")


if __name__ == "__main__":
    main()
