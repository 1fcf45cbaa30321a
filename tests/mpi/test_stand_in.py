"""Every algorithm on two stand-in devices gives the bits of the CPU, on one rank and on three."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcfl.bench.stand_in import is_possible, stand_in_devices
from hpcfl.cli import main
from hpcfl.log.reader import read_log
from tests.helpers.cases import prepare_images
from tests.helpers.mpi import ROOT, mpich
from tests.helpers.runs import CHECKPOINTS, assert_equal_runs
from tests.mpi.on_devices import FLOAT32, RUNS, SHARED

pytestmark = pytest.mark.skipif(not is_possible(), reason="this torch has no backends in Python")

PROGRAM = "tests.mpi.on_devices"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    prepare_images(directory)
    return directory


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Where the logs of one process on the CPU lie."""
    directory = tmp_path_factory.mktemp("cpu")
    alone("cpu", directory, root)
    return directory


def alone(kind: str, directory: Path, root: Path) -> str:
    """Runs all in one process of its own, as rank 0 of several has one."""
    command = [sys.executable, "-m", PROGRAM, kind, str(directory), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    names = [name for name in RUNS if kind != "float32" or name in FLOAT32]
    assert f"codes {dict.fromkeys(names, 0)}" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_catalogue_on_one_rank(on_cpu: Path, root: Path, tmp_path: Path):
    assert "standin:0" in alone("standin", tmp_path, root)
    for name in RUNS:
        assert_equal_runs(tmp_path / f"{name}.h5", on_cpu / f"{name}.h5")


def test_a_device_without_float64(on_cpu: Path, root: Path, tmp_path: Path):
    said = alone("float32", tmp_path, root)
    assert said.count("standin has no float64: the server, and clients' sums in float64, are") == len(FLOAT32)
    for name in FLOAT32:
        assert_equal_runs(tmp_path / f"{name}.h5", on_cpu / f"{name}.h5")


def test_a_checkpoint_continues_on_another_type_of_device(tmp_path: Path):
    """Two rounds there and two on the CPU, and the other way round, are four rounds on the CPU."""
    settings = [f"--set={each}" for each in (*CHECKPOINTS, "runtime.step=plain")]

    def train(name: str, rounds: int) -> str:
        arguments = [
            "train",
            *settings,
            f"--set=federation.rounds={rounds}",
            "--out",
            f"{tmp_path}/{name}.h5",
        ]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        return done.output

    train("whole", 4)
    with stand_in_devices(1):
        train("there", 2)
    train("back", 2)
    assert "rounds so far were computed on standin, now on cpu" in train("there", 4)
    with stand_in_devices(1):
        assert "rounds so far were computed on cpu, now on standin" in train("back", 4)
        watched = CliRunner().invoke(main, ["watch", f"{tmp_path}/back.h5", "--once"])
    for name in ("there", "back"):
        assert_equal_runs(tmp_path / f"{name}.h5", tmp_path / "whole.h5")
    assert watched.exit_code == 0, watched.output


def test_the_catalogue_on_three_ranks_and_two_devices(on_cpu: Path, root: Path, tmp_path: Path):
    done = mpich().run(3, "-m", PROGRAM, "standin", tmp_path, root, cwd=ROOT)
    codes = dict.fromkeys([*RUNS, *SHARED], 0) | {"mixed": 2}
    assert f"codes {codes}" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
    assert "the ranks have different types of device (cpu on rank 0, standin on rank 1)" in done.stderr
    for name in RUNS:
        assert_equal_runs(tmp_path / f"{name}.h5", on_cpu / f"{name}.h5")
    run = read_log(tmp_path / "partial.h5")
    assert run.attributes["device"] == "standin:0"
    for client in run["/client/rank"].T:  # a pool for each device, and a worker in each
        assert len(set(client[client >= 0])) <= 1, "a client moved to another device"
    assert "sharing [2, 2]" in done.stdout, "two workers divide the memory, whether they are a pool or not"
    for name in SHARED:
        assert_equal_runs(tmp_path / f"{name}.h5", on_cpu / "partial.h5")
