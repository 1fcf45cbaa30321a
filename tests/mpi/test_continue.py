"""A run that is stopped or killed under mpirun goes on, on any number of ranks, and ends with equal bits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from hpcfl import job
from tests.conftest import ROOT, mpich, open_mpi
from tests.mpi.cases import results

SETTINGS = [
    *("method.name=fedtgp-sparse", "method.server_epochs=5", "federation.participation=0.4"),
    *("data.samples_per_class=200", "federation.rounds=60", "models.features=16"),
    *("runtime.checkpoint_rounds=7", "log.evaluate_every=2"),
]


def stopped_after(ranks: int, out: Path, line: str) -> str:
    """Runs on some ranks, asks for a stop once a round is done, and returns what was said."""
    given = [f"--set={setting}" for setting in SETTINGS]
    command = mpich().command(ranks, "-m", "hpcfl", "train", "--out", out, *given)
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        said = ""
        for each in running.stdout:
            said += each
            if each.startswith(line):
                running.send_signal(signal.SIGUSR1)
                break
        said += running.stdout.read()
        assert running.wait(timeout=60) == 75, said
    return said


def test_from_5_ranks_to_2_and_to_9(tmp_path: Path):
    out = tmp_path / "run.h5"
    assert "stopping after this round" in stopped_after(5, out, "round 4/")
    assert "continues after round" in stopped_after(2, out, "round 2")
    given = [f"--set={setting}" for setting in SETTINGS]
    done = mpich().run(9, "-m", "hpcfl", "train", "--out", out, *given, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continues after round" in done.stdout
    assert job.train(None, SETTINGS, str(tmp_path / "alone.h5"), False) == 0
    got, want = results(out), results(tmp_path / "alone.h5")
    assert [path for path in want if got[path] != want[path]] == []


def test_a_few_kills_at_random_instants():
    mpich(), open_mpi()
    command = [sys.executable, str(ROOT / "tools" / "kills.py"), "--seed", "3", "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
