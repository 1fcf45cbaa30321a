"""Ratio of a round's wall and CPU seconds on many ranks to those on few: the same clients, interleaved."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from hpcfl.log.reader import read_log

BIN = Path(sys.executable).parent
ROUNDS_OF_SECONDS = [
    *("--set=data.samples_per_class=20000", "--set=train.epochs=5", "--set=federation.rounds=6"),
    *("--set=log.evaluate_every=2", "--set=log.prototypes_every=100"),
]


def run(ranks: int, out: Path) -> tuple[float, float]:
    """Returns the median wall and CPU seconds of a round, the first left out."""
    command = [str(BIN / "mpirun"), "-n", str(ranks), str(BIN / "hpcfl"), "train", "--out", str(out)]
    subprocess.run([*command, *ROUNDS_OF_SECONDS], check=True, stdout=subprocess.DEVNULL)
    log = read_log(out)
    return median(log["/round/seconds"][1:].tolist()), median(log["/round/cpu_seconds"][1:].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=21)
    parser.add_argument("--few", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        for n in range(asked.repeats):
            few = run(asked.few, Path(directory) / f"few{n}.h5")
            many = run(asked.many, Path(directory) / f"many{n}.h5")
            ratios.append((many[0] / few[0], many[1] / few[1]))
            print(
                f"{asked.few} ranks: {few[0]:.2f} s wall, {few[1]:.2f} s CPU; "
                f"{asked.many} ranks: {many[0]:.2f} s wall, {many[1]:.2f} s CPU; "
                f"ratios {ratios[-1][0]:.2f} and {ratios[-1][1]:.2f}",
                flush=True,
            )
    wall, cpu = (median(values) for values in zip(*ratios, strict=True))
    print(
        f"median ratio of a round on {asked.many} ranks to one on {asked.few}: wall {wall:.2f}, CPU {cpu:.2f}"
    )


if __name__ == "__main__":
    main()
