"""Cost of a checkpoint: within one run, the rounds that save against those that do not.

Every fourth round begins with a checkpoint, which may last into the next; the two rounds after these save
nothing. So noise that lasts longer than four rounds affects both alike.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from hpcfl.bench.job import Job, on_ranks, with_settings
from hpcfl.checkpoint.store import checkpoint_directory
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log

EVERY = 4
ROUNDS_OF_A_SECOND = [
    *("data.samples_per_class=15000", f"federation.rounds={20 * EVERY + 1}"),
    *("models.list=['mlp_256']", "models.features=512", "log.prototypes_every=1000"),
    *("runtime.checkpoint_minutes=0", f"runtime.checkpoint_rounds={EVERY}"),
]


def bench_checkpoint(ranks: int, repeats: int, settings: tuple[str, ...]) -> int:
    """Prints the cost of a checkpoint in milliseconds and as a share of a round."""
    settings = (*ROUNDS_OF_A_SECOND, *settings)
    if (rounds := load_config(None, settings).federation.rounds) < 2 * EVERY:
        raise BadInput(f"federation.rounds = {rounds}: must be at least {2 * EVERY}, two periods")
    periods = []
    with tempfile.TemporaryDirectory() as directory:
        for n in range(repeats):
            seconds, nbytes = _run(ranks, Path(directory, f"{n}.h5"), settings)
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
    return 0


def _run(ranks: int, out: Path, settings: tuple[str, ...]) -> tuple[np.ndarray, int]:
    """Returns the seconds of the rounds by period, those that save first, and the bytes of a checkpoint."""
    with Job(on_ranks(ranks, "train", "--out", out, *with_settings(settings))) as job:
        job.finish()
    files = checkpoint_directory(out).iterdir()
    nbytes = sum(path.stat().st_size for path in files) // 2  # the last two checkpoints are kept
    return by_period(read_log(out)["/round/seconds"]), nbytes


def by_period(seconds: np.ndarray) -> np.ndarray:
    """Returns the rounds after the first period as rows of EVERY; an incomplete last period is left out."""
    seconds = seconds[EVERY:]
    return seconds[: len(seconds) // EVERY * EVERY].reshape(-1, EVERY)
