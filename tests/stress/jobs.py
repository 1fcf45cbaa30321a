"""Federations under either MPI that are broken on purpose, and how their end is awaited."""

from __future__ import annotations

import time
from pathlib import Path

from hpcfl.bench.job import Job, is_alive, with_settings
from tests.helpers.mpi import MPICH, OPEN_MPI, ROOT

LAUNCHERS = {"mpich": MPICH, "openmpi": OPEN_MPI}
STARTED: list[Federation] = []
"""Every federation that was started, to be ended."""


class Federation(Job):
    """A run of `hpcfl train`, and its log."""

    def __init__(self, mpi: str, ranks: int, out: Path, *settings: str) -> None:
        command = ["-m", "hpcfl", "train", "--out", out, *with_settings(settings)]
        super().__init__(LAUNCHERS[mpi].command(ranks, *command), ROOT)
        self.out = out
        STARTED.append(self)

    def gone(self, seconds: float) -> float:
        """Returns after how many seconds launcher and ranks are all gone."""
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            if self.process.poll() is not None and not any(map(is_alive, self.ranks.values())):
                self.reader.join(5)
                return time.monotonic() - start
            time.sleep(0.05)
        left = [rank for rank, pid in self.ranks.items() if is_alive(pid)]
        raise AssertionError(f"still there after {seconds} s: ranks {left}\n{self.text}")

    @property
    def text(self) -> str:
        """What was printed so far."""
        return "".join(self.lines)


def start(mpi: str, ranks: int, directory: Path, rounds: int, *settings: str) -> Federation:
    """Starts a federation and returns when its first round is over."""
    job = Federation(mpi, ranks, directory / "run.h5", f"federation.rounds={rounds}", *settings)
    job.wait_for("round 1/")
    assert sorted(job.ranks) == list(range(ranks)), job.ranks
    return job


def end_all() -> None:
    """Ends every federation that was started."""
    for job in STARTED:
        job.end()
    STARTED.clear()
