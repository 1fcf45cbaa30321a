"""Fills a disk up to a random size, runs a command of hpcfl on it, and reports what it should not do.

tools/test --stress full-disks --seed 0 --count 200 [--task NAME]

A command must succeed with the right file, or end with one sentence and exit code 1 or 2. Then earlier files
are whole, no temporary file is left, and the same command succeeds once there is space again. Needs root, for
a small disk in memory (a mount namespace); nothing outside it changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from hpcfl.data.prepare import prepare
from hpcfl.study.run import run_study
from hpcfl.utils.hdf5_file import open_hdf5
from tests.helpers import layouts
from tests.stress.attempts import SETUP_LIMIT, read_content, run_command, run_forked
from tests.stress.mutations.kinds import (
    CONTINUE,
    PREPARE,
    images_of_dataset,
    make_checkpoints,
    make_npz,
    results_of_log,
)

MEGABYTES = 32
PAGE = os.sysconf("SC_PAGE_SIZE")
MOUNTED = "HPCFL_FULL_DISK"
"""Environment variable that names the directory of the small disk."""
NOTHING = "no file"
IMAGES = 2000
"""So many that labels and writers are pages of their own, after those of the images."""
STUDY = """
set.federation = {clients = 2, rounds = 1}
set.models = {list = ["mlp_64"], features = 4}
set.partition.name = "iid"
set.data.samples_per_class = 20
[[block]]
name = "seeds"
grid.seed = [0, 1]
"""


@dataclass(frozen=True)
class Task:
    """A command that writes files. Its functions run in the directory of the small disk."""

    make: Callable[[], object]
    """Makes what is there before the command."""
    command: tuple[str, ...]
    content: Callable[[], str]
    """Returns the content of the file that the command makes; raises if it is damaged."""
    grows: bool = False
    """Whether the file may also be a part of the new one, as a log after each round."""


def make_earlier_dataset() -> None:
    """Prepares other images under the same name."""
    np.savez("own.npz", x=layouts.images(500, 6, seed=1), y=np.arange(500) % 4)
    assert list(prepare("own", "own.npz", "root"))
    make_npz(IMAGES)


def make_study(cells: Sequence[str] = ("seeds-s0",)) -> None:
    """Runs all cells, and merges some of them."""
    Path("study.toml").write_text(STUDY)
    for only in (cells, []):
        merged = Path("out/study.h5").read_bytes() if not only else b""
        assert run_study("study.toml", "full", [], "out", only) == 0
        if merged:
            Path("out/study.h5").write_bytes(merged)


def merged_study() -> str:
    """Returns a digest of the merged file."""
    digest = hashlib.blake2b()
    with open_hdf5(Path("out/study.h5")) as file:

        def add(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset) and "seconds" not in name:
                digest.update(f"{name} {item[()].tolist()}".encode())

        file.visititems(add)
    return digest.hexdigest()


TASKS = {
    "prepare": Task(lambda: make_npz(IMAGES), PREPARE, images_of_dataset),
    "prepare-again": Task(make_earlier_dataset, PREPARE, images_of_dataset),
    "train": Task(lambda: None, CONTINUE, results_of_log, grows=True),
    "continue": Task(make_checkpoints, CONTINUE, results_of_log, grows=True),
    "merge": Task(make_study, ("study", "run", "study.toml", "--out", "out"), merged_study),
}


class Disk:
    """The small disk, with the files of a task."""

    def __init__(self, path: Path, task: Task, originals: Path):
        self.path, self.task, self.originals = path, task, originals
        originals.mkdir()
        made = run_forked(task.make, originals, SETUP_LIMIT)
        assert made.code == 0, made.stderr
        self._reset()
        self.before = self._content()
        start = self._used_pages()
        ended = run_command(task.command, path, SETUP_LIMIT)
        assert ended.code == 0, ended.stderr
        self.after = self._content()
        self.most_pages = max(self._used_pages() - start, 0) + 2 * max(map(_pages, path.rglob("*"))) + 8
        """The command may need so many pages."""

    def outcome(self, rng: random.Random) -> tuple[str, str]:
        """Runs the command on a full disk; returns how it ended, in capitals if that must not be."""
        pages = rng.randrange(self.most_pages)
        self._reset()
        ballast = self.path / "ballast"
        with open(ballast, "wb") as file:
            size = os.statvfs(self.path).f_bavail - pages
            os.posix_fallocate(file.fileno(), 0, size * PAGE)
        ended = run_command(self.task.command, self.path)
        shown = f"{pages} pages free: {ended.stdout}{ended.stderr}"
        content = self._content()
        if fault := ended.fault or self._content_fault(ended.code == 0, content):
            return fault, f"{shown}{content}"
        if left := [str(path) for path in self.path.rglob("*.part")]:
            return "LEFT a temporary file", f"{shown}{left}"
        if ended.code == 0:
            return "succeeded", ""
        ballast.unlink()
        again = run_command(self.task.command, self.path)
        if again.code or self._content() != self.after:
            return "NOT RIGHT once there is space again", f"{shown}{again.stdout}{again.stderr}"
        return f"exit code {ended.code}", ""

    def _content_fault(self, succeeded: bool, content: str) -> str:
        """Returns what must not be in the file that the command makes, in capitals."""
        if content.isupper() or (succeeded and content != self.after):
            return "WRONG FILE"
        if not succeeded and content != self.after:
            is_same = content == self.before or (self.task.grows and content != NOTHING)
            return "" if is_same else "EARLIER FILE is another"
        return ""

    def _reset(self) -> None:
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.originals, self.path, dirs_exist_ok=True)

    def _content(self) -> str:
        def content() -> str:
            try:
                return self.task.content()
            except Exception as error:
                if "No such file" in str(error) or "no such file" in str(error):
                    return NOTHING
                raise

        return read_content(content, self.path)

    def _used_pages(self) -> int:
        return sum(map(_pages, self.path.rglob("*")))


def _pages(path: Path) -> int:
    return -(-path.stat().st_size // PAGE) if path.is_file() else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/test --stress full-disks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--task", choices=sorted(TASKS), help="one of them alone")
    asked = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print("full-disks: needs root, to mount a small disk", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        if MOUNTED in os.environ:
            return run_all(asked, Path(os.environ[MOUNTED]), Path(directory))
        command = f'mount -t tmpfs -o size={MEGABYTES}m tmpfs "${MOUNTED}" && exec "$@"'
        again = [sys.executable, "-m", "tests.stress.full_disks", *arguments]
        environ = os.environ | {MOUNTED: directory}
        return subprocess.run(["unshare", "-m", "sh", "-c", command, "sh", *again], env=environ).returncode


def run_all(asked: argparse.Namespace, path: Path, directory: Path) -> int:
    """Runs the tasks in turn and returns the exit code."""
    tasks = {name: task for name, task in TASKS.items() if asked.task in (None, name)}
    outcomes, bad = Counter[str](), 0
    for index, (name, task) in enumerate(tasks.items()):
        numbers = range(index, asked.count, len(tasks))
        if not numbers:
            continue
        disk = Disk(path, task, directory / name)
        for number in numbers:
            ended, text = disk.outcome(random.Random(f"{asked.seed} {name} {number}"))
            outcomes[f"{name} {ended}"] += 1
            if not ended.islower():
                bad += 1
                print(f"disk {number}, {name}: {ended}\n{text}", flush=True)
    counts = ", ".join(f"{count} {ended}" for ended, count in sorted(outcomes.items()))
    print(f"{asked.count} full disks: {counts}; {bad} not as they must be (seed {asked.seed})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
