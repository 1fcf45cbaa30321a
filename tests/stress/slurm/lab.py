"""A cluster and a directory in which one scenario runs: jobs are submitted as a user does, and looked at."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import read_log
from tests.helpers.mpi import MPICH, ROOT
from tests.stress.slurm.cluster import Cluster, until

LIMIT = 600.0
"""Seconds within which a job must end, restarts included."""

SETTINGS = ("data.samples_per_class=200", "models.features=8", "federation.clients=6")
ROOT_MAY_RUN = {
    f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")
}
LASTING = ("PENDING", "RUNNING", "COMPLETING", "REQUEUED")


@dataclass(frozen=True)
class State:
    """What Slurm says of a job."""

    name: str
    restarts: int
    code: str


@dataclass
class Lab:
    """A cluster, and a directory in which one scenario runs."""

    cluster: Cluster
    place: Path
    jobs: list[str] = field(default_factory=list)

    def submit(
        self, script: str, options: list[str], arguments: list[str], mpi: str = "pmi2", bin: Path = MPICH.bin
    ) -> str:
        """Submits a script of jobs/ and returns the job's number."""
        command = ["sbatch", "--output=%A-%a.log", *options, str(ROOT / "jobs" / script), *arguments]
        return self.submitted(self.run(command, mpi, bin))

    def submitted(self, said: str) -> str:
        """Returns the number of the job that was submitted, from what sbatch says."""
        self.jobs.append(said.split()[-1])
        return self.jobs[-1]

    def run(self, command: list[str], mpi: str = "pmi2", bin: Path = MPICH.bin) -> str:
        """Runs a command as on a login node and returns what it prints."""
        environ = self.cluster.environ | {
            **ROOT_MAY_RUN,
            "PATH": f"{bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "HPCFL_JOBS": str(ROOT / "jobs"),
            "HPCFL_MPI": mpi,
            "HPCFL": "python -m hpcfl",
            "HPCFL_MPIRUN": "--bind-to none",
        }
        done = subprocess.run(
            command, cwd=self.place, env=environ, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def hpcfl(self, *arguments: str) -> str:
        """Runs hpcfl on one process, outside of jobs, and returns what it prints."""
        return self.run(["python", "-m", "hpcfl", *arguments])

    def alone(self, name: str, arguments: list[str]) -> Path:
        """Runs the same on one process, outside of Slurm, and returns the log."""
        self.hpcfl("train", *arguments, "--out", name)
        return self.place / name

    def states(self, job: str) -> list[State]:
        """Returns the state of a job, or of every task of an array."""
        text = self.cluster.ask("scontrol", "show", "job", job)
        found = [re.findall(rf"\b{key}=(\S+)", text) for key in ("JobState", "Restarts", "ExitCode")]
        return [State(name, int(restarts), code) for name, restarts, code in zip(*found, strict=True)]

    def ends(self, job: str) -> list[State]:
        """Returns the states of a job once it has ended; a requeued one need not wait its two minutes."""

        def ended() -> bool:
            names = [state.name for state in self.states(job)]
            if "PENDING" in names and "BeginTime" in self.cluster.ask("squeue", "--noheader", "--format=%r"):
                self.cluster.ask("scontrol", "update", f"jobid={job}", "starttime=now")
            return not any(name in LASTING for name in names)

        until(ended, LIMIT, f"job {job} has not ended after {LIMIT:g} s: {self.states(job)}")
        return self.states(job)

    def reaches(self, job: str, text: str) -> None:
        """Returns once a job has printed a text."""
        until(lambda: text in self.output(job), LIMIT, f"job {job} does not print {text!r}")

    def output(self, job: str) -> str:
        return "".join(
            path.read_text(errors="replace") for path in sorted(self.place.rglob(f"{job}[-_]*.log"))
        )

    def logs(self) -> str:
        """Returns the last lines of every job's output."""
        return "\n".join(
            f"job {job}: {self.states(job)}\n" + "\n".join(self.output(job).splitlines()[-40:])
            for job in self.jobs
        )

    def clear(self) -> None:
        """Cancels what is left, so that the next scenario finds an idle cluster."""
        for job in self.jobs:
            self.cluster.ask("scancel", job)
        self.cluster.mend()


def settings(*more: str) -> list[str]:
    return [f"--set={setting}" for setting in (*SETTINGS, *more)]


def same(one: Path, other: Path) -> str:
    """Checks that two logs hold the same results."""
    assert one.exists(), f"{one.name} was not written"
    difference = compare_runs(read_log(one), read_log(other))
    assert difference is None, f"{one.name} and {other.name} differ: {difference}"
    return "all results equal to one process"
