"""The programs of tests/stress, as far as they can be tried in seconds."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.mpi import ROOT
from tests.stress import devices, failures, full_disks, kills, papers, study_kills
from tests.stress.attempts import run_forked
from tests.stress.mutations.__main__ import Trial
from tests.stress.mutations.__main__ import main as mutations
from tests.stress.mutations.kinds import KINDS
from tests.stress.slurm import install
from tests.stress.slurm.__main__ import main as slurm

NAMES = [
    "failures",
    "papers",
    "kills",
    "study-kills",
    "shared-memory",
    "mutations",
    "full-disks",
    "devices",
    "slurm",
]


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["kill"]])
def test_without_a_known_name_they_are_listed(arguments: list[str]):
    command = [str(ROOT / "tools" / "test"), "--stress", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stderr.splitlines()[1:]] == NAMES


def test_every_name_is_a_program():
    for name in NAMES:
        path = ROOT / "tests" / "stress" / name.replace("-", "_")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_nothing_to_do(capsys: pytest.CaptureFixture[str]):
    assert failures.main(["--count", "0"]) == 0
    assert kills.main(["--count", "0"]) == 0
    said = capsys.readouterr().out
    assert said == "0 of 0 as they must be (seed 0)\n0 kills ({}) of 0 runs, 0 runs failed (seed 0)\n"


@pytest.mark.parametrize(
    "main",
    [
        devices.main,
        failures.main,
        full_disks.main,
        kills.main,
        mutations,
        papers.main,
        study_kills.main,
        slurm,
    ],
)
def test_unknown_arguments(main, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--nothing"])
    assert ended.value.code == 2
    assert "--nothing" in capsys.readouterr().err


def run(program: str, *arguments: str) -> str:
    """Runs a program, which forks and so needs a process of its own; returns the line with its outcome."""
    command = [sys.executable, "-m", f"tests.stress.{program}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_few_damaged_files(kind: str):
    said = run("mutations", "--kind", kind, "--count", "6", "--seed", "1")
    assert said.startswith(f"6 damaged {kind}: ")
    assert said.endswith("; 0 not as they must be (seed 1)\n")


def test_a_hang_is_one_if_it_comes_again(monkeypatch, capsys: pytest.CaptureFixture[str]):
    """The first file hangs once, the second one always; each trial of a file damages it in the same way."""
    ends, seen = iter(["HANG", "refused", "HANG", "HANG"]), []

    def outcome(trial: Trial, rng: random.Random) -> tuple[str, str]:
        seen.append(rng.random())
        return next(ends), ""

    monkeypatch.setattr(Trial, "__init__", lambda *_: None)
    monkeypatch.setattr(Trial, "outcome", outcome)
    assert mutations(["--count", "2"]) == 1
    assert seen[0] == seen[1] != seen[2] == seen[3]
    said = "file 1: HANG\n\n2 damaged logs: 1 refused, 1 HANG; 1 not as they must be (seed 0)\n"
    assert capsys.readouterr().out == said


def test_files_without_a_digest_are_those_of_hdf5(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        mutations(["--kind", "npz", "--older"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: --older: npz have no digest at their end\n")


@pytest.mark.slow
def test_a_few_full_disks():
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs root, to mount a small disk")
    said = run("full_disks", "--count", "10")
    assert said.startswith("10 full disks: ")
    assert said.endswith("; 0 not as they must be (seed 0)\n")


def test_full_disks_need_root(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert full_disks.main([]) == 2
    assert capsys.readouterr().err == "full-disks: needs root, to mount a small disk\n"


def test_what_must_not_be_is_found(tmp_path: Path):
    """A process that is killed, raises, unpickles or prints two lines is reported."""
    ends = {
        "CRASH by signal 9": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "TRACEBACK": lambda: 1 // 0,
        "EXECUTED what is in a file": lambda: pickle.loads(pickle.dumps(os.mkdir)),
        "EXIT CODE 3": lambda: sys.exit(3),
        "NOT ONE SENTENCE": lambda: (os.write(2, b"hpcfl: one\nhpcfl: two\n"), sys.exit(2)),
        "": lambda: (os.write(2, b"hpcfl: one\n"), sys.exit(2)),
    }
    for fault, body in ends.items():
        assert run_forked(body, tmp_path).fault == fault


def test_logs_of_a_study(tmp_path: Path):
    for name in ("b.h5", "study.h5", "a.h5", "a.h5.lock"):
        (tmp_path / name).touch()
    assert study_kills.logs(tmp_path) == ["a.h5", "b.h5"]


def test_machines_without_slurm(monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(install, "_process_names", set)
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert slurm([]) == 2
    assert capsys.readouterr().err == "slurm: needs root, to install and start Slurm\n"
    monkeypatch.setattr(install, "_process_names", lambda: {"slurmd"})
    assert slurm([]) == 2
    assert capsys.readouterr().err == "slurm: a Slurm runs here already\n"
    assert slurm(["--stop", str(tmp_path)]) == 2
    assert "holds no Slurm that --keep left" in capsys.readouterr().err
