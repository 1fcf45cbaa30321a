"""A run as an offline run of Weights & Biases, to be sent later by `wandb sync`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.export.scalars import parameters, rounds, run_id, start_time
from hpcfl.log.reader import Run

PROJECT = "hpcfl"
"""The project of `wandb sync`, unless its option --project names another."""


def write(run: Run, directory: Path) -> Iterator[str]:
    """Writes the file of the run, and yields its name; steps are rounds, counted from 1."""
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    settings = wandb.Settings(
        mode="offline",
        root_dir=str(directory),
        console="off",
        x_disable_meta=True,
        x_disable_stats=True,
        disable_git=True,
        disable_code=True,
    )
    tracked = wandb.init(
        project=PROJECT,
        id=run_id(run),
        name=run.path.stem,
        group=run.study or None,
        config=parameters(run),
        settings=settings,
    )
    for number, _, values in rounds(run):
        tracked.log(values, step=number)
    tracked.finish()
    found = list(directory.rglob("*.wandb"))
    if len(found) != 1:
        raise BadInput(f"{run.path}: wandb {wandb.__version__} wrote {len(found)} files instead of one")
    name = f"{folder_name(run)}/{found[0].name}"
    (directory / name).parent.mkdir()
    shutil.move(found[0], directory / name)
    yield name


def folder_name(run: Run) -> str:
    """Returns the name that wandb gives to a run that has not been sent yet; others are passed over."""
    start = datetime.fromtimestamp(start_time(run), UTC)
    return f"offline-run-{start:%Y%m%d_%H%M%S}-{run_id(run)}"
