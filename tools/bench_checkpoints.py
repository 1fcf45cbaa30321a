"""What a checkpoint costs: within one run, the rounds that save against those that do not.

tools/bench-checkpoints [--ranks 3] [--repeats 3] [--set KEY=VALUE]…

Every fourth round begins with a checkpoint, which may last into the next; the two rounds after these save
nothing. So noise that lasts longer than four rounds meets both alike.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from hpcfl.checkpoint.store import checkpoint_directory
from hpcfl.log.reader import read_log

BIN = Path(sys.executable).parent
EVERY = 4
ROUNDS_OF_A_SECOND = [
    *("data.samples_per_class=15000", f"federation.rounds={20 * EVERY + 1}"),
    *("models.list=['mlp_256']", "models.features=512", "log.prototypes_every=1000"),
    *("runtime.checkpoint_minutes=0", f"runtime.checkpoint_rounds={EVERY}"),
]


def run(ranks: int, out: Path, settings: list[str]) -> tuple[np.ndarray, int]:
    """Returns the seconds of the rounds by period, those that save first, and the bytes of a checkpoint."""
    given = [f"--set={setting}" for setting in settings]
    command = [str(BIN / "mpirun"), "-n", str(ranks), str(BIN / "hpcfl"), "train", "--out", str(out), *given]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = read_log(out)["/round/seconds"][EVERY:]
    saved = (
        sum(path.stat().st_size for path in checkpoint_directory(out).iterdir()) // 2
    )  # the last two are kept
    return seconds[: len(seconds) // EVERY * EVERY].reshape(-1, EVERY), saved


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    asked = parser.parse_args()
    periods = []
    with tempfile.TemporaryDirectory() as directory:
        for n in range(asked.repeats):
            given = [*ROUNDS_OF_A_SECOND, *asked.settings]
            seconds, nbytes = run(asked.ranks, Path(directory) / f"{n}.h5", given)
            periods.append(seconds)
    seconds = np.concatenate(periods)
    length = float(np.median(seconds[:, 2:]))
    cost = seconds[:, :2].sum(1) - seconds[:, 2:].sum(1)
    low, middle, high = np.quantile(cost, [0.25, 0.5, 0.75])
    print(
        f"{len(seconds)} checkpoints of {nbytes / 1e6:.1f} MB, rounds of {length:.2f} s: a checkpoint costs "
        f"{1000 * middle:.0f} ms (quartiles {1000 * low:.0f} and {1000 * high:.0f}), "
        f"{middle / length:.1%} of a round; the longest round that saves {seconds[:, :2].max():.2f} s, "
        f"that does not {seconds[:, 2:].max():.2f} s"
    )


if __name__ == "__main__":
    main()
