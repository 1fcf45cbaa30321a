"""Wall and CPU seconds of a round on many ranks ÷ those on few: the same clients, in turn."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from hpcfl.bench.job import Job, on_ranks, with_settings
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log

ROUNDS_OF_SECONDS = [
    *("data.samples_per_class=20000", "train.epochs=5", "federation.rounds=6"),
    *("log.evaluate_every=2", "log.prototypes_every=100"),
]


def bench_ranks(many: int, few: int, repeats: int, settings: tuple[str, ...]) -> int:
    """Prints the ratios of each repeat and their medians."""
    settings = (*ROUNDS_OF_SECONDS, *settings)
    if (rounds := load_config(None, settings).federation.rounds) < 2:
        raise BadInput(f"federation.rounds = {rounds}: must be at least 2, the first is not counted")
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        for n in range(repeats):
            wall, cpu = _round_seconds(few, Path(directory, f"few{n}.h5"), settings)
            many_wall, many_cpu = _round_seconds(many, Path(directory, f"many{n}.h5"), settings)
            ratios.append((many_wall / wall, many_cpu / cpu))
            print(
                f"{few} ranks: {wall:.2f} s wall, {cpu:.2f} s CPU; "
                f"{many} ranks: {many_wall:.2f} s wall, {many_cpu:.2f} s CPU; "
                f"ratios {ratios[-1][0]:.2f} and {ratios[-1][1]:.2f}",
                flush=True,
            )
    wall, cpu = (median(values) for values in zip(*ratios, strict=True))
    print(f"median ratio of a round on {many} ranks to one on {few}: wall {wall:.2f}, CPU {cpu:.2f}")
    return 0


def _round_seconds(ranks: int, out: Path, settings: tuple[str, ...]) -> tuple[float, float]:
    """Returns the median wall and CPU seconds of a round, the first left out."""
    with Job(on_ranks(ranks, "train", "--out", out, *with_settings(settings))) as job:
        job.finish()
    log = read_log(out)
    return median(log["/round/seconds"][1:].tolist()), median(log["/round/cpu_seconds"][1:].tolist())
