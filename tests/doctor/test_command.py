"""The command as users start it, alone and under both MPIs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcfl.doctor import command, rank_info
from hpcfl.doctor.rank_info import GpuInfo
from tests.helpers.mpi import ROOT, Mpi, mpich, open_mpi

NAMES = [
    *("launch", "MPI", "fabric", "versions", "cores", "binding", "devices", "clients", "dataset"),
    *("shared memory", "memory", "output", "lock", "disk space", "left behind"),
]


def lines(text: str) -> dict[str, tuple[str, str]]:
    """Returns level and words by name; every line has the same form."""
    rows = [line for line in text.splitlines() if line.startswith(("ok ", "warning ", "problem "))]
    return {row[9:22].strip(): (row[:8].strip(), row[23:]) for row in rows}


def test_alone(hpcfl):
    done = hpcfl("doctor")
    assert done.exit_code == 0, done.output
    found = lines(done.output)
    assert list(found) == NAMES
    assert len(done.output.splitlines()) == len(NAMES) + 1
    assert done.output.splitlines()[-1].startswith("hpcfl doctor: ")
    assert found["dataset"] == ("ok", "spiral is there")
    for package in ("hpcfl", "python", "torch", "numpy", "h5py", "mpi4py"):
        assert f"{package} " in found["versions"][1]
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        (["--set=data.name=cifar10"], "dataset", "hpcfl data prepare cifar10 --root data"),
        (["--set=runtime.device=cuda"], "devices", "see no GPU"),
        (["--out=file/run.h5"], "output", "not a directory"),
    ],
)
def test_a_problem_is_one_line_and_exit_code_1(hpcfl, monkeypatch, options, name, words):
    monkeypatch.setattr(rank_info, "find_gpus", lambda *_: GpuInfo())
    Path("file").write_text("")
    done = hpcfl("doctor", *options)
    assert done.exit_code == 1, done.output
    found = lines(done.output)
    assert [each for each, (level, _) in found.items() if level == "problem"] == [name]
    assert words in found[name][1]
    assert list(found) == NAMES
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_bad_input_is_one_sentence_and_loads_no_torch(tmp_path):
    program = (
        "import sys; from click.testing import CliRunner; from hpcfl.cli import main; "
        "done = CliRunner().invoke(main, ['doctor', '--set', 'train.lr=0']); "
        "print(done.exit_code, 'torch' in sys.modules, 'mpi4py' in sys.modules, done.output, end='')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "2 False False hpcfl: train.lr = 0: must be greater than 0\n", done.stderr


@pytest.mark.parametrize("options", [["none.toml"], ["--set=partition.alpha=0"]])
def test_a_run_that_cannot_be_is_bad_input(hpcfl, options):
    done = hpcfl("doctor", *options)
    assert done.exit_code == 2
    assert done.output.count("hpcfl: ") == 1


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("method.taw=3", "unknown key method.taw (nearest: method.tau)"),
        ("method.tau=0", "method.tau = 0: must be greater than 0"),
    ],
)
def test_a_wrong_option_is_bad_input_even_if_there_is_no_data(hpcfl, setting, says):
    done = hpcfl("doctor", "--set=method.name=fedtgp", "--set=data.name=cifar10", f"--set={setting}")
    assert (done.exit_code, done.output) == (2, f"hpcfl: {says}\n")


def test_a_step_that_never_ends_is_named(tmp_path):
    program = (
        "import time; from hpcfl.doctor import command; command.MAX_STEP_SECONDS = 1.0; "
        "command.load_config = lambda *_: time.sleep(60); command.run_doctor(None, [], None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=30
    )
    assert done.returncode == 1
    assert done.stderr.endswith("stood still for 1 s: reading the configuration\n")


def test_patience_ends_with_the_command(hpcfl, monkeypatch):
    begun = []
    monkeypatch.setattr(command.StepTimeout, "start", lambda self: begun.append(self))
    hpcfl("doctor", "--set", "train.lr=0")
    assert begun[0].finished.is_set()


def test_under_mpirun_rank_0_speaks_for_all(tmp_path, mpi: Mpi):
    """One start: as it is, bound to one core, without data, without a directory, with bad input."""
    questions = [
        ([], None, False),
        ([], None, True),
        (["data.name=cifar10"], None, False),
        ([], "/proc/none/run.h5", False),
        (["train.lr=0"], None, False),
        (["partition.alpha=0"], None, False),
    ]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = mpi.run(3, "-m", "tests.mpi.doctors", json.dumps(questions), cwd=tmp_path, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = done.stdout.split("codes ")
    assert [part.splitlines()[0] for part in parts[1:]] == [f"[{code}, {code}, {code}]" for code in wanted()]
    plain, tied, dataless, homeless = (lines(part) for part in parts[:4])
    assert list(plain) == [*NAMES, "exchange"]
    assert "3 ranks on 1 node" in plain["launch"][1]
    assert plain["exchange"][1].startswith("3 ranks met and answered in ")
    assert parts[0].count("launch") == 1
    if len(os.sched_getaffinity(0)) > 1:
        assert tied["binding"][0] == "problem"
        assert "all 3 ranks of" in tied["binding"][1]
    assert "hpcfl data prepare cifar10" in dataless["dataset"][1]
    assert homeless["output"][0] == "problem"
    assert done.stderr.count("hpcfl: train.lr = 0") == done.stderr.count("hpcfl: partition.alpha") == 1
    assert done.stderr.count("hpcfl: ") == 2
    assert list(tmp_path.iterdir()) == []


def wanted() -> list[int]:
    return [0, 1 if len(os.sched_getaffinity(0)) > 1 else 0, 1, 1, 2, 2]


@pytest.mark.mpi
def test_processes_that_each_run_alone_are_a_finding():
    """Each mpirun starts the other MPI's Python; the first process reports for all."""
    first, second = mpich(), open_mpi()
    for launcher, python in ((first, second), (second, first)):
        command = [*launcher.command(3)[:-1], str(python.bin / "python"), "-m", "hpcfl", "doctor"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stdout.count(" launch ") == 1
        level, words = lines(done.stdout)["launch"]
        assert level == "problem"
        assert "started 3 processes, but this Python's MPI is" in words
        assert "Traceback" not in done.stderr


@pytest.mark.mpi
def test_tasks_that_mpi_does_not_link_are_a_finding(tmp_path):
    """srun without a matching --mpi: the step has four tasks, MPI's world one."""
    environ = {
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_PROCID": "0",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
    }
    asked = [str(mpich().bin / "python"), "-m", "hpcfl", "doctor"]
    done = subprocess.run(asked, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    level, words = lines(done.stdout)["launch"]
    assert level == "problem"
    assert "srun started 4 processes, but MPI (MPICH" in words
    assert "srun --mpi=list" in words
