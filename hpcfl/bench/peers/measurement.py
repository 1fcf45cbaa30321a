"""Runs a program and measures from outside: when it ends its rounds, and the memory of all its processes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from hpcfl.bench.job import Job, pss

INTERVAL = 0.5
"""Seconds between two looks at the memory."""
LIMIT = 1800.0
"""Seconds after which a program that does not end is stopped."""
ROUND = re.compile(r"round (\d+)\b")
TOKEN = "HPCFL_BENCH_RUN"
"""Variable of the environment by which all processes of a program are found, daemons too."""


@dataclass(frozen=True)
class Measurement:
    """What a run of a program took; with a problem, nothing else counts."""

    round_seconds: float = 0.0
    """Median of all rounds but the first and the last."""
    cpu_seconds: float = 0.0
    """Of all its processes together in such a round, on average."""
    start_seconds: float = 0.0
    """From the start of the program to the start of its first round."""
    peak_bytes: int = 0
    """Largest sum of the proportional set sizes of all its processes."""
    problem: str = ""


class ProgramRun(Job):
    """A program whose lines `round N` are timed as they arrive."""

    def __init__(
        self, command: Sequence[str], directory: Path, rounds: int, variables: Sequence[str] = ()
    ) -> None:
        self.token, self.rounds = secrets.token_hex(8), rounds
        self.start, self.ends = time.perf_counter(), dict[int, float]()
        self.cpu: dict[int, float] = {}
        """CPU seconds of all processes after the first round and after the last that counts."""
        super().__init__(["env", f"{TOKEN}={self.token}", *variables, *command], directory)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                if match := ROUND.match(line):
                    number = int(match[1])
                    self.ends.setdefault(number, time.perf_counter())
                    if number in (1, self.rounds - 1):
                        self.cpu[number] = sum(map(cpu_seconds, self.processes()))
                self.lines.append(line)

    def processes(self) -> list[int]:
        """Returns the ids of all processes of the program."""
        wanted, found = f"{TOKEN}={self.token}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Ends all processes of the program."""
        while left := [pid for pid in self.processes() if pid != os.getpid()]:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            time.sleep(0.05)
        self.process.wait()


def measure(
    command: Sequence[str], directory: Path, rounds: int, variables: Sequence[str] = ()
) -> Measurement:
    """Runs a program to its end and returns what it took."""
    peak = 0
    with ProgramRun(command, directory, rounds, variables) as run:
        while run.process.poll() is None:
            if time.perf_counter() - run.start > LIMIT:
                return Measurement(problem=f"does not end within {LIMIT / 60:.0f} minutes")
            peak = max(peak, sum(map(pss, run.processes())))
            time.sleep(INTERVAL)
        code = run.process.wait()
        run.reader.join(5)
        done = [run.ends[n] for n in range(1, rounds + 1) if n in run.ends]
        if code or len(done) < rounds:
            return Measurement(problem=_problem(code, len(done), rounds, run.lines))
    cpu = (run.cpu[rounds - 1] - run.cpu[1]) / (rounds - 2)
    return from_times(run.start, done, cpu, peak)


def cpu_seconds(pid: int) -> float:
    """Returns the CPU seconds of a process and of its children that have ended, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def from_times(start: float, ends: Sequence[float], cpu: float, peak: int) -> Measurement:
    """Returns the measurement of a program that began at `start` and ended its rounds at these times."""
    lasted = [after - before for before, after in pairwise(ends)]
    seconds = median(lasted[:-1])
    return Measurement(seconds, cpu, ends[0] - start - seconds, peak)


def _problem(code: int, done: int, rounds: int, lines: Sequence[str]) -> str:
    """Returns how a program failed, with the last line that names an error."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)] or said
    last = f": {errors[-1]}" if errors else ""
    return f"exit code {code} after {done} of {rounds} rounds{last}"
