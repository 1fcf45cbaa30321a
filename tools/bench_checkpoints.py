"""What checkpoints cost: the same run with one after every round, every ten seconds, and with none."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from hpcfl.log.reader import read

BIN = Path(sys.executable).parent
ROUNDS_OF_SECONDS = [
    *("data.samples_per_class=20000", "train.epochs=5", "federation.rounds=8"),
    *("models.list=['mlp_256']", "models.features=512", "log.prototypes_every=100"),
]
WAYS = {
    "none": ["runtime.checkpoint_minutes=0"],
    "every 10 s": ["runtime.checkpoint_minutes=0.1666"],
    "every round": ["runtime.checkpoint_minutes=0", "runtime.checkpoint_rounds=1"],
}


def run(ranks: int, out: Path, settings: list[str]) -> float:
    """Returns the median seconds of a round, the first and the last left out."""
    given = [f"--set={setting}" for setting in settings]
    command = [str(BIN / "mpirun"), "-n", str(ranks), str(BIN / "hpcfl"), "train", "--out", str(out), *given]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return median(read(out)["/round/seconds"][1:-1].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    asked = parser.parse_args()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as directory:
        for n in range(asked.repeats):
            for number, (way, settings) in enumerate(WAYS.items()):
                out = Path(directory) / f"{number}-{n}.h5"
                given = [*ROUNDS_OF_SECONDS, *asked.settings, *settings]
                seconds[way].append(run(asked.ranks, out, given))
    for way, values in seconds.items():
        ratios = [value / none for value, none in zip(values, seconds["none"], strict=True)]
        said = ", ".join(f"{value:.2f}" for value in values)
        print(f"{way}: rounds of {said} s; ratio to none, median {median(ratios):.3f}")


if __name__ == "__main__":
    main()
