"""One failing rank ends them all, and says so last."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcfl.log.reader import read_log
from hpcfl.study.run import run_study
from hpcfl.study.run_store import RunStore
from hpcfl.study.study_file import read_study
from tests.helpers.mpi import ROOT, Mpi, mpich, open_mpi

OURS = re.compile(r"^(\[rank \d+\] |round |hpcfl: )")


@pytest.mark.parametrize(
    ("mpi", "rank", "place"),
    [
        ("openmpi", 2, "cell"),
        ("mpich", 2, "cell"),
        ("openmpi", 0, "refine"),
        ("mpich", 1, "start"),
        ("openmpi", 1, "plan"),
    ],
    indirect=["mpi"],
)
def test_an_exception_on_any_rank_ends_all(mpi: Mpi, tmp_path: Path, rank: int, place: str):
    out = tmp_path / "run.h5"
    study = tmp_path / "study.toml"
    study.write_text('[[block]]\nname = "cell"\ngrid.seed = [0, 1]\nset.federation.rounds = 10\n')
    command = mpi.command(3, "-m", "tests.mpi.failing", rank, place, out)
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    ended = time.time()
    assert done.returncode != 0
    (failed,) = re.findall(r"failing at ([\d.]+)", done.stdout)
    assert ended - float(failed) < 10
    ours = [line for line in done.stdout.splitlines() if OURS.match(line)]
    assert ours[-1] == f"[rank {rank}] ZeroDivisionError: made to fail"
    assert f"[rank {rank}] Traceback (most recent call last):" in ours
    if place == "cell":
        assert read_log(tmp_path / "cell-s0.h5").status == "running"
        assert (tmp_path / "failed" / "cell-s0.txt").read_text().startswith("rank 2\nTraceback")
        assert run_study(str(study), "full", [], str(tmp_path), []) == 1, (
            "the next start goes on with the others"
        )
        store = RunStore(tmp_path)
        assert [store.progress(cell).state for cell in read_study(study).cells] == ["failed", "finished"]
    assert not list(tmp_path.glob("*.part"))


def test_every_kind_of_failure_ends_as_it_must():
    """A raise, slow and frozen ranks, with one MPI or the other; tests/stress/kills.py has the kills."""
    mpich(), open_mpi()
    command = [sys.executable, "-m", "tests.stress.failures", "--each", "--skip=kill", "--by-turns"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr


NETWORK = """
import os
from torch import nn

class Leaving(nn.Module):
    def __init__(self, shape, features):
        super().__init__()
        self.layer = nn.Linear(shape[0], features)

    def forward(self, x):
        if x.device.type != "meta" and os.fork() == 0:
            os._exit(0)  # a child process may
        return self.layer(x) if x.device.type == "meta" else os._exit(0)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_network_that_leaves_does_not_look_like_success(tmp_path: Path, ranks: int):
    (tmp_path / "leaving.py").write_text(NETWORK)
    command = mpich().command(ranks, "-m", "hpcfl", "train", "--set=models.list=['leaving:Leaving']")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "os._exit(0) was called before the end of the job" in done.stderr
    if ranks < 3:  # of several that leave, the first may end the others before they speak
        assert done.stderr.count(f"hpcfl: rank {ranks - 1}: os._exit(0)") == 1


def test_processes_that_each_run_alone_are_refused(tmp_path: Path):
    """Each mpirun starts the other MPI's Python: N singletons, were they let go on."""
    first, second = mpich(), open_mpi()
    for launcher, python in ((first, second), (second, first)):
        command = [*launcher.command(3)[:-1], str(python.bin / "python"), "-m", "hpcfl", "train"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert done.stderr.count("hpcfl: ") == 1
        assert "started 3 processes, but this Python's MPI is" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_launcher_that_mpi_does_not_see_is_refused(tmp_path: Path):
    """srun without a matching --mpi: the step has four tasks, MPI's world one."""
    environ = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "PATH": "/usr/bin:/bin"}
    command = [str(mpich().bin / "python"), "-m", "hpcfl", "train"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert re.match(
        r"hpcfl: srun started 4 processes, but MPI \(MPICH .*\) sees 1: each runs alone", done.stderr
    )
    assert not list(tmp_path.iterdir())


def test_one_interrupt_ends_the_round_and_leaves_a_whole_log_and_a_checkpoint(tmp_path: Path):
    out = tmp_path / "run.h5"
    command = mpich().command(3, "-m", "hpcfl", "train", "--set", "federation.rounds=5000", "--out", out)
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("round 3/"):
                break
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        code = running.wait(timeout=30)
    assert code == 75
    assert "SIGINT: stopping after this round" in rest
    assert "Traceback" not in rest
    run = read_log(out)
    assert run.status == "stopped"
    assert f"stopped early; the same command goes on after round {run.rounds_done}" in rest
    assert len(run["/round/accuracy"]) == run.rounds_done >= 3
    assert (tmp_path / "run.h5.ckpt" / f"manifest-{run.rounds_done - 1}.json").exists()
    assert not (tmp_path / "run.h5.lock").exists()
