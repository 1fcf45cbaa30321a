"""What `hpcfl plan` predicts against what a run takes: peak memory of all ranks, seconds of training."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from hpcfl.bench.job import HPCFL, Job, on_ranks, total_pss, with_settings
from hpcfl.config.loading import load_config
from hpcfl.log.reader import read_log

INTERVAL = 0.5
"""Seconds between two looks at the memory."""


def bench_plan(config: str | None, settings: tuple[str, ...], ranks: int, rounds: int) -> int:
    """Plans a configuration, runs it under mpirun, and prints predicted ÷ measured."""
    load_config(config, settings)
    options = [*([config] if config else []), *with_settings(settings)]
    run = on_ranks(ranks, "train", *options, f"--set=federation.rounds={rounds}")
    with Job([*HPCFL, "plan", *options, "-n", str(ranks), "--json", "--calibrate"]) as job:
        text = job.finish()
    forecast, _ = json.JSONDecoder().raw_decode(text, text.index("{"))  # a warning may stand before it
    peak, seconds = _measure(run)
    for what, expected, got, unit in (
        ("memory", sum(forecast["node_bytes"]) / 2**30, peak / 2**30, "GiB"),
        ("training in a round", forecast["round_seconds"], sum(seconds) / len(seconds), "s"),
    ):
        print(f"{what}: predicted {expected:.2f} {unit}, measured {got:.2f} {unit}: {expected / got:.2f}")
    return 0


def _measure(command: list[str]) -> tuple[int, list[float]]:
    """Returns the peak memory of all ranks together, and the seconds of each round's training."""
    with tempfile.TemporaryDirectory() as directory:
        out, peak = Path(directory, "run.h5"), 0
        with Job([*command, "--out", str(out)]) as job:
            while job.process.poll() is None:
                peak = max(peak, total_pss(job))
                time.sleep(INTERVAL)
            job.finish()
        return peak, read_log(out)["/round/seconds_train"].tolist()
