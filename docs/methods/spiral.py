"""Draws global (dashed) and local prototypes (points) of the spiral in two dimensions: ProtoNorm's Fig. 2.

python docs/methods/spiral.py [--rounds 200] [--runs runs/spiral] [--out docs/methods/spiral.png]

Finished runs are not repeated; a run takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np

from hpcfl.log.reader import read_log

matplotlib.use("Agg")
from matplotlib import pyplot

COMMON = [
    *("federation.clients=10", "models.group=mlp_taper", "models.features=2", "data.samples_per_class=5000"),
    *("log.evaluate_every=10", "log.prototypes_every=50", "log.local_prototypes=true"),
]
FEDPROTO = ["method.aggregate=mean", "method.weight=10.0"]
PANELS = {
    "FedProto, λ = 10, IID": [*FEDPROTO, "partition.name=iid"],
    "FedProto, λ = 10": FEDPROTO,
    "ProtoNorm, λ = 10, γ = 1": ["method.name=protonorm", "method.scale=1.0"],
    "ProtoNorm, λ = 1, γ = 10": ["method.name=protonorm", "method.weight=1.0"],
}
"""Without IID: Dirichlet(0.1). With λ = 10, γ = 10 kills the units of so small a network."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--runs", type=Path, default=Path("runs/spiral"))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    asked = parser.parse_args()
    asked.runs.mkdir(parents=True, exist_ok=True)
    figure, panels = pyplot.subplots(1, 4, figsize=(13, 3.7), layout="constrained")
    for number, (title, settings) in enumerate(PANELS.items()):
        out = asked.runs / f"{number}.h5"
        given = [*COMMON, *settings, f"federation.rounds={asked.rounds}"]
        options = [part for setting in given for part in ("--set", setting)]
        subprocess.run([sys.executable, "-m", "hpcfl", "train", *options, "--out", str(out)], check=True)
        run = read_log(out)
        draw(panels[number], run["/prototypes/global"][-1], run["/prototypes/local"][-1])
        gap = gaps(run["/prototypes/global"][-1])
        panels[number].set_title(
            f"{title}\naccuracy {run['/round/accuracy'][-1]:.1%}, angles {gap.min():.0f}–{gap.max():.0f}°"
        )
        print(f"{title}: angles between neighbours {np.sort(gap).round(1)}")
    figure.savefig(asked.out, dpi=110)


def gaps(value_KD: np.ndarray) -> np.ndarray:
    """Returns the angles between neighbouring global prototypes, in degrees."""
    angles = np.sort(np.degrees(np.arctan2(value_KD[:, 1], value_KD[:, 0])))
    return np.diff([*angles, angles[0] + 360])


def draw(axes: pyplot.Axes, global_KD: np.ndarray, local_MKD: np.ndarray) -> None:
    reach = 1.05 * max(np.nanmax(np.abs(local_MKD)), np.abs(global_KD).max())
    colours = pyplot.get_cmap("tab10").colors  # type: ignore[attr-defined]
    for k, value_D in enumerate(global_KD):
        far = value_D / np.linalg.norm(value_D) * reach
        axes.plot([0, far[0]], [0, far[1]], "--", color=colours[k], linewidth=1)
        axes.plot(*value_D, "x", color=colours[k])
        axes.plot(local_MKD[:, k, 0], local_MKD[:, k, 1], ".", color=colours[k])
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")


if __name__ == "__main__":
    main()
