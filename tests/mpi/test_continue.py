"""A run that is stopped or killed under mpirun goes on, on any number of ranks, and ends with equal bits."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpcfl.engine import launch
from hpcfl.log.reader import Run, read_log
from hpcfl.system.events import Status
from tests.helpers.mpi import ROOT, mpich, open_mpi
from tests.helpers.runs import assert_equal_runs
from tests.helpers.studies import GOOD, start

SETTINGS = [
    *("method.name=fedtgp-sparse", "method.server_epochs=5", "federation.participation=0.4"),
    *("data.samples_per_class=200", "federation.rounds=60", "models.features=16"),
    *("runtime.checkpoint_rounds=7", "log.evaluate_every=2"),
    *("system.profile=phones", "system.latency={median=1.0, sigma=1.0}"),
    *("system.deadline=1.0", "system.late=keep"),
]
"""Checkpoints hold late uploads."""


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


def killed_after(ranks: int, out: Path, line: str) -> str:
    """Runs on some ranks, kills rank 0 once a round is done, and returns what was said."""
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
                os.kill(_ranks(out)["0"], signal.SIGKILL)
                break
        said += running.stdout.read()
        assert running.wait(timeout=60) not in (0, 75), said
    while _ranks(out):
        time.sleep(0.1)
    return said


def test_from_5_ranks_to_2_and_after_a_kill_to_9(tmp_path: Path):
    out = tmp_path / "run.h5"
    assert "stopping after this round" in stopped_after(5, out, "round 4/")
    assert "continues after round" in killed_after(2, out, "round 2")
    given = [f"--set={setting}" for setting in SETTINGS]
    done = mpich().run(9, "-m", "hpcfl", "train", "--out", out, *given, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    again = re.search(r"continues after round (\d+)", done.stdout)
    assert again
    assert late_after(read_log(out), int(again[1])), "no late upload was under way"
    assert launch.launch_train(None, SETTINGS, str(tmp_path / "alone.h5"), False) == 0
    assert_equal_runs(out, tmp_path / "alone.h5")


def late_after(run: Run, rounds: int) -> int:
    """Returns how many late uploads are under way when so many rounds are done."""
    columns = ("seconds", "client_seconds", "status")
    under_way: list[float] = []
    for length, end_M, status_M in zip(*(run[f"/virtual/{name}"][:rounds] for name in columns), strict=True):
        under_way = [seconds - length for seconds in under_way if seconds > length]
        under_way += list(end_M[status_M == Status.LATE] - length)
    return len(under_way)


def test_a_study_whose_rank_is_killed_goes_on(tmp_path: Path, tiny: Path):
    out, settings = tmp_path / "out", ("federation.rounds=20", "train.lr=0.001")
    command = mpich().command(3, "-m", "hpcfl", "study", "run", tiny, "--out", out)
    command += [*(f"--cell={name}" for name in GOOD[:3]), *(f"--set={setting}" for setting in settings)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("cell 2 of 3" in line for line in running.stdout)
        os.kill(_ranks(out)["1"], signal.SIGKILL)
        running.communicate(timeout=60)
    while _ranks(out):
        time.sleep(0.1)
    assert not (out / "study.h5").exists()
    assert read_log(out / f"{GOOD[0]}.h5").status == "finished"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cell 1 of 3" not in done.stdout
    assert start(tiny, GOOD[:3], *settings, out="alone") == 0
    for name in GOOD[:3]:
        assert_equal_runs(out / f"{name}.h5", tmp_path / "alone" / f"{name}.h5")


def _ranks(out: Path) -> dict[str, int]:
    """Returns the processes of the ranks that write to a directory, by rank."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(out).encode() in (entry / "cmdline").read_bytes():
                environ = (entry / "environ").read_text(errors="replace").split("\0")
                found |= {v.removeprefix("PMI_RANK="): int(entry.name) for v in environ if "PMI_RANK=" in v}
    return found


def test_a_few_kills_at_random_instants():
    mpich(), open_mpi()
    command = [sys.executable, "-m", "tests.stress.kills", "--seed", "3", "--count", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
