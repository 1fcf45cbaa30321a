"""`result` datasets are equal bit for bit on any number of ranks and with either MPI."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hpcfl.engine import launch
from hpcfl.log.reader import read_log
from tests.conftest import ROOT, mpich, open_mpi
from tests.mpi.cases import CASES, FEW_RANKS, METHODS, STUDY, WAYS, prepare_images, results, runs

FAILS = {"diverging": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the prepared images of one of the cases lie."""
    directory = tmp_path_factory.mktemp("data")
    prepare_images(directory)
    return directory


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[str, dict[str, bytes]]:
    """The results of one process, without MPI."""
    directory = tmp_path_factory.mktemp("alone")
    for name, settings in CASES.items():
        assert launch.launch_train(
            None, [*settings, f"data.root={root}"], str(directory / f"{name}.h5"), False
        ) == FAILS.get(name, 0)
    assert read_log(directory / "unlabelled images.h5")["/round/accepted"][2:].any()
    for name in METHODS:
        run = read_log(directory / f"{name}.h5")
        owned = run["/clients/class_counts"] > 0
        uploaded = [owned[who].any(0) for who in run["/round/participants"]]
        assert not np.all(uploaded, axis=1).any(), "classes are absent from every round"
    return {name: results(directory / f"{name}.h5") for name in CASES}


NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CH4_NETMOD": "ofi"}
"""Makes MPICH take one machine for two nodes that talk by OFI, which moves within calls of MPI only."""


@pytest.mark.parametrize(
    ("kind", "ranks", "environ"), [("mpich", 4, NODES), ("mpich", 21, {}), ("openmpi", 5, {})]
)  # starting 21 ranks takes most of a minute on two cores
def test_equal_bits(
    alone: dict[str, dict[str, bytes]], root: Path, tmp_path: Path, kind: str, ranks: int, environ: dict
):
    mpi = {"mpich": mpich, "openmpi": open_mpi}[kind]()
    (tmp_path / "study.toml").write_text(STUDY)
    done = mpi.run(ranks, "-m", "tests.mpi.several", tmp_path, root, cwd=ROOT, env=os.environ | environ)
    codes = {name: FAILS.get(name, 0) for name in runs(ranks)} | ({"study": 1} if ranks <= FEW_RANKS else {})
    assert f"codes {codes}" in done.stdout, done.stdout + done.stderr
    for name in runs(ranks):
        got, want = results(tmp_path / f"{name}.h5"), alone["rare" if name in WAYS else name]
        different = [path for path in got if got[path] != want[path]]
        assert not different, f"{name} on {ranks} ranks"
    run = read_log(tmp_path / "full.h5")
    assert run.attributes["ranks"] == ranks
    assert run.attributes["nodes"] == int(environ.get("MPIR_CVAR_NUM_CLIQUES", 1))
    assert (run["/round/bytes_mpi"] > 0).all()
    trained_by = read_log(tmp_path / "pinned.h5")["/client/rank"]
    for client in trained_by.T:
        assert len(set(client[client >= 0])) <= 1, "a pinned client moved"
    assert set(run["/client/rank"].ravel()) <= set(range(1, ranks))
    assert (run["/client/seconds"] > 0).all()
    if ranks <= FEW_RANKS:
        _a_study_and_a_guest_too(done.stdout, tmp_path, ranks, alone["full"])


def _a_study_and_a_guest_too(said: str, tmp_path: Path, ranks: int, full: dict[str, bytes]) -> None:
    names = [f"study/{cell}" for cell in ("ranks-r1", "ranks-r2", "ranks-r3", "other-lr=0.01")]
    for name in (*names, "guest", "everybody"):
        assert results(tmp_path / f"{name}.h5") == full, f"{name} on {ranks} ranks"
    assert [read_log(tmp_path / f"study/ranks-r{n}.h5").attributes["ranks"] for n in (1, 2, 3)] == [1, 2, 3]
    assert "it asks for 999 ranks" in said
    guest = json.loads(next(line for line in said.splitlines() if line.startswith("guest "))[6:])
    assert guest["returned"] == guest["everybody"] == guest["continued"] == [4, *[None] * (ranks - 1)]
    halves = [read_log(tmp_path / f"half-{seed}.h5") for seed in (0, 1)]
    assert [run.config.seed for run in halves] == [0, 1]
    assert [run.attributes["ranks"] for run in halves] == [-(-ranks // 2), ranks // 2]
    assert guest["bad"] == ["Refused: train.lr = 0.0: must be greater than 0"] * ranks
    assert all(said.startswith("RunFailed: ") for said in guest["diverged"])
    assert guest["failed"].pop(1) == "ZeroDivisionError: made to fail"
    assert guest["failed"] == ["OtherFailed: rank 1: ZeroDivisionError: made to fail"] * (ranks - 1)
