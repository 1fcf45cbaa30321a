"""The kinds of files that are damaged: how they are made, which commands read them, and what follows."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from hpcfl.data.prepare import prepare
from hpcfl.data.prepared_file import open_prepared, verify_images
from hpcfl.engine.launch import launch_train
from hpcfl.log.reader import Run, read_log
from hpcfl.runtime.deadline import Deadline
from hpcfl.runtime.exit_handling import STOPPED
from tests.helpers import layouts
from tests.helpers.logs import add, new_log
from tests.helpers.runs import options
from tests.stress.mutations.damage import damage_checkpoint, damage_file, damage_npz

SMALL = ("federation.clients=2", "models.list=['mlp_64']", "models.features=4", "partition.name=iid")
IMAGES = (*SMALL, "federation.rounds=1")
SPIRAL = (*SMALL, "federation.rounds=5", "data.samples_per_class=20", "runtime.checkpoint_rounds=1")


@dataclass(frozen=True)
class Command:
    """A command of hpcfl that reads a file."""

    arguments: tuple[str, ...]
    content: Callable[[], str]
    """Returns what the command made of the file, once it succeeded."""


@dataclass(frozen=True)
class Kind:
    """A kind of file that is damaged. Its functions and commands run in a directory of small files."""

    make: Callable[[], object]
    damaged: str
    """Pattern of the files of which one is damaged."""
    commands: tuple[Command, ...]
    damage: Callable[[Path, random.Random], None] = damage_file
    is_hdf5: bool = False
    """Whether the file has a digest at its end, which older versions did not write."""
    has_checksums: bool = True
    """Whether damaged values are found without that digest."""


def make_log(path: Path) -> None:
    """Writes a log that `hpcfl show` shows."""
    log = new_log(path)
    log.attributes |= dict.fromkeys(("host", "mpi", "device", "placement", "arena", "method"), "any")
    log.attributes |= dict.fromkeys(("nodes", "cores", "ranks"), 1)
    for _ in range(3):
        add(log)
    log.close("finished")


def make_npz(count: int = 60) -> None:
    """Writes a few images, labels and writers, as a user does."""
    label = np.arange(count) % 3
    np.savez("own.npz", x=layouts.images(count, 6, channels=1), y=label, writer=label // 2 + 5)


def make_dataset() -> None:
    make_npz()
    assert list(prepare("own", "own.npz", "."))


def make_checkpoints(rounds: int = 3) -> None:
    """Lets a run end after some rounds, as a walltime does: its two last checkpoints are kept."""
    late = [*[False] * (rounds - 1), True]
    with mock.patch.object(Deadline, "too_late_for_next", side_effect=late):
        assert launch_train(None, SPIRAL, "run.h5", False) == STOPPED


def all_of_log() -> str:
    run = read_log("run.h5")
    attributes = [(name, str(value)) for name, value in sorted(run.attributes.items())]
    return _digest(attributes, run, sorted(run.datasets))


def results_of_log() -> str:
    """Returns a digest of the results of a run; two runs of one configuration have the same."""
    run = read_log("run.h5")
    results = [path for path, metric in run.metrics.items() if metric.kind == "result"]
    return _digest([run.status, run.rounds_done], run, sorted(results))


def _digest(first: Sequence[object], run: Run, paths: list[str]) -> str:
    content = [*first, *((path, str(run[path].dtype), run[path].tolist()) for path in paths)]
    return hashlib.blake2b(repr(content).encode()).hexdigest()


def images_of_dataset(path: Path = Path("root/own.h5")) -> str:
    """Returns the checksums of a prepared file, of which all was verified."""
    data = open_prepared(path)
    verify_images(data)
    return f"{data.checksum} {data.checksum_images}"


TRAIN_IMAGES = ("train", "--out", "run.h5", *options("data.name=own", "data.root=.", *IMAGES))
SHOW_SPLIT = ("data", "show", "own", "--root", ".", "--out", "split.csv", *options(*IMAGES))
PREPARE = ("data", "prepare", "own", "--root", "root", "--source", "own.npz", "--fresh")
CONTINUE = ("train", "--out", "run.h5", *options(*SPIRAL))
KINDS = {
    "logs": Kind(
        lambda: make_log(Path("run.h5")),
        "run.h5",
        (Command(("show", "run.h5"), all_of_log),),
        is_hdf5=True,
        has_checksums=False,
    ),
    "datasets": Kind(
        make_dataset,
        "own.h5",
        (
            Command(SHOW_SPLIT, lambda: Path("split.csv").read_text()),
            Command(TRAIN_IMAGES, results_of_log),
        ),
        is_hdf5=True,
    ),
    "npz": Kind(make_npz, "own.npz", (Command(PREPARE, images_of_dataset),), damage_npz),
    "checkpoints": Kind(
        make_checkpoints, "run.h5.ckpt/*", (Command(CONTINUE, results_of_log),), damage_checkpoint
    ),
}
