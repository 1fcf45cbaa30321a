"""Small runs in one process: their settings, and ways to train them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from hpcfl.checkpoint.store import CheckpointStore
from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import Run, read_log

SHORT = ("--set=data.samples_per_class=100", "--set=federation.rounds=2")
"""Options of `hpcfl train` for a run that is over at once."""
SMALL = ["data.samples_per_class=200", "federation.rounds=4", "models.features=8"]
CHECKPOINTS = [
    *(*SMALL, "federation.rounds=6", "log.prototypes_every=2"),
    *("federation.participation=5", "runtime.checkpoint_rounds=1"),
]
"""A small run that writes a checkpoint after every round."""


def options(*settings: str) -> list[str]:
    """Returns settings as options of `hpcfl train`."""
    return [f"--set={setting}" for setting in settings]


def assert_equal_runs(one: str | Path, other: str | Path) -> None:
    """Checks that two logs hold the same results, bit for bit."""
    difference = compare_runs(read_log(one), read_log(other))
    assert difference is None, f"{one} and {other} differ: {difference}"


def train_log(hpcfl: Callable[..., Result], *settings: str, code: int = 0) -> Run:
    """Trains a new run as run.h5, checks the exit code, and returns its log."""
    done = hpcfl("train", "--out", "run.h5", "--fresh", *options(*settings))
    assert done.exit_code == code, done.output
    return read_log("run.h5")


def stop_early(
    train: Callable[..., Result], stop_after: list[int], rounds: int = 4, *settings: str
) -> CheckpointStore:
    """Returns the checkpoints of a run that was stopped after some rounds; the next one is not stopped."""
    stop_after[0] = rounds
    assert train("run.h5", *settings).exit_code == 75
    stop_after[0] = 1000
    return CheckpointStore(Path("run.h5.ckpt"))
