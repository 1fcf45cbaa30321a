"""A small run, stopped."""

from __future__ import annotations

from pathlib import Path

from hpcfl.checkpoint.store import CheckpointStore

SMALL = [
    *("data.samples_per_class=200", "federation.rounds=6", "models.features=8", "log.prototypes_every=2"),
    *("federation.participation=5", "runtime.checkpoint_rounds=1"),
]


def stopped(train, in_haste, rounds: int = 4, *settings: str) -> CheckpointStore:
    """Returns the checkpoints of a run that was stopped after some rounds."""
    in_haste[0] = rounds
    assert train("run.h5", *settings).exit_code == 75
    in_haste[0] = 1000
    return CheckpointStore(Path("run.h5.ckpt"))
