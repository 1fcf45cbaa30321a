"""What the lab tries: the job scripts as a user submits them, each held against a run on one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpcfl.log.reader import read_log
from tests.helpers.mpi import MPICH, OPEN_MPI
from tests.stress.slurm.cluster import until
from tests.stress.slurm.lab import Lab, State, same, settings
from tests.stress.slurm.study import study


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
    seconds = float(np.median(read_log(probe)["/round/seconds"]))
    rounds = int(80 / seconds)  # of three ranks two train: 40 s or more
    arguments = settings(f"federation.rounds={rounds}", "log.evaluate_every=10")
    options = ["-N3", "-n3", "--time=1", "--signal=B:USR1@35"]
    job = lab.submit("train.sbatch", options, [*arguments, "--out=run.h5"])
    until(lambda: lab.states(job)[0].restarts == 1, 120, "the job was not requeued")
    assert read_log(lab.place / "run.h5").rounds_done < rounds, "the run ended before its walltime"
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
    return f"not requeued, {read_log(lab.place / 'run.h5').rounds_done} rounds readable"


SCENARIOS: dict[str, Callable[[Lab], str]] = {
    "nodes": lambda lab: over_nodes(lab, mpi="pmi2", bin=MPICH.bin),
    "mpich-mpirun": lambda lab: over_nodes(lab, mpi="mpirun", bin=MPICH.bin),
    "openmpi": lambda lab: over_nodes(lab, mpi="mpirun", bin=OPEN_MPI.bin),
    "walltime": walltime,
    "array": array,
    "study": study,
    "node-failure": node_failure,
    "cancel": cancel,
}
"""By name; `nodes`, `mpich-mpirun` and `openmpi` start the ranks in three ways."""
