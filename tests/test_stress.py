"""The programs of tests/stress, as far as they can be tried in seconds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.mpi import ROOT
from tests.stress import failures, kills, study_kills
from tests.stress.mutations.__main__ import main as mutations
from tests.stress.slurm import install
from tests.stress.slurm.__main__ import main as slurm

NAMES = ["failures", "kills", "study-kills", "shared-memory", "mutations", "slurm"]


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


@pytest.mark.parametrize("main", [failures.main, kills.main, mutations, study_kills.main, slurm])
def test_unknown_arguments(main, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--nothing"])
    assert ended.value.code == 2
    assert "--nothing" in capsys.readouterr().err


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
