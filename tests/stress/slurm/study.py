"""A study as an array: one cell breaks on one rank, one is longer than its job, others are short."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from hpcfl.log.reader import read_log
from tests.stress.slurm.cluster import until
from tests.stress.slurm.lab import Lab, State, same, settings

BREAKS = """
from torch import nn

from hpcfl.comm.launcher import find_launcher


class Breaks(nn.Sequential):
    steps = 0

    def forward(self, x_B):
        found = find_launcher()
        if self.training and x_B.device.type != "meta" and found and found.rank == 2:
            Breaks.steps += 1
            if Breaks.steps > 60:
                raise RuntimeError("made to break on rank 2")
        return super().forward(x_B)


def breaks(shape, features):
    return Breaks(nn.Linear(*shape, 16), nn.ReLU(), nn.Linear(16, features))
"""
"""A user's network that breaks on one rank, after some rounds."""

STUDY = """
[set]
data.samples_per_class = 200
models.features = 8
federation.clients = 6
federation.rounds = 4
[[block]]
name = "before"
cells = [{{ models.list = ["mlp_64", "mlp_256"] }}]
[[block]]
name = "broken"
cells = [{{ models.list = ["mynets:breaks"], federation.rounds = 40 }}]
[[block]]
name = "after"
[block.grid]
seed = [1, 2]
[[block]]
name = "long"
cells = [{{ federation.rounds = {rounds}, log.evaluate_every = 10 }}]
"""
FILE = "my study.toml"
OUT = "runs/my study"


def study(lab: Lab) -> str:
    """Task 1 has the long cell, in a job of a minute; task 2 the one that breaks, and short ones."""
    probe = lab.alone("probe.h5", settings("federation.rounds=30"))
    rounds = int(80 / float(np.median(read_log(probe)["/round/seconds"])))  # of three ranks two train: 40 s
    (lab.place / "mynets.py").write_text(BREAKS)
    (lab.place / FILE).write_text(STUDY.format(rounds=rounds))
    options = ["-N3", "--time=1", "--signal=B:USR1@35", "--hold"]
    command = ["study", "submit", FILE, "-n3", "--hours=0.0125"]
    said = lab.hpcfl(*command, "--", *options)
    assert "5 cells in 2 tasks" in said, said
    job = lab.submitted(said)
    long, short = f"{job}_1", f"{job}_2"  # the longest tasks come first
    lab.cluster.ask("scontrol", "update", f"jobid={short}", "timelimit=30")
    lab.cluster.ask("scontrol", "release", job)
    until(lambda: lab.states(long)[0].restarts == 1, 180, "the long task was not requeued")
    assert read_log(_log(lab, "long")).rounds_done < rounds, "the long cell ended before its walltime"
    lab.cluster.ask("scontrol", "update", f"jobid={long}", "timelimit=60")
    assert lab.ends(long) == [State("COMPLETED", 1, "0:0")], lab.states(long)
    assert lab.ends(short) == [State("FAILED", 0, "1:0")], lab.states(short)
    output = lab.output(job)
    assert output.count("stopped in time, queued again") == 1
    assert output.count("a cell of the study failed; going on with the others") == 1
    (mark,) = (lab.place / OUT / "failed").iterdir()
    assert mark.name.startswith("broken"), mark
    assert mark.read_text().startswith("rank 2\nTraceback"), mark.read_text()
    return f"{_compared(lab)}; the one that breaks is marked, the long one was requeued"


def _log(lab: Lab, start: str) -> Path:
    (found,) = (lab.place / OUT).glob(f"{start}-*.h5")
    return found


def _compared(lab: Lab) -> str:
    """Returns what was found equal to one process, where nothing breaks; checks what the commands say."""
    status = lab.hpcfl("study", "status", FILE)
    assert "5 cells, 4 finished, 1 failed" in " ".join(status.split()), status
    assert "RuntimeError: made to break on rank 2" in " ".join(status.split()), status
    assert "nothing to submit" in lab.hpcfl("study", "submit", FILE)
    retry = lab.hpcfl("study", "submit", FILE, "-n3", "--retry", "--dry-run")
    assert [word for word in retry.split() if word.startswith("--cell=")] == [
        f"--cell={_log(lab, 'broken').stem}"
    ]
    lab.hpcfl("study", "run", FILE, "--out", "alone")
    good = [log for log in (lab.place / OUT).glob("*-*.h5") if not log.name.startswith("broken")]
    for log in good:
        same(log, lab.place / "alone" / log.name)
    with h5py.File(lab.place / OUT / "study.h5") as file:
        assert len(file["/cell/name"]) == 5
    return f"{len(good)} cells equal to one process"
