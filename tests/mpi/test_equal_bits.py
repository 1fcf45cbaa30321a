"""`result` datasets are equal bit for bit on any number of ranks and with either MPI."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import Run, read_log
from tests.helpers.cases import (
    CASES,
    FEW_RANKS,
    HABITS,
    METHODS,
    STUDY,
    WAYS,
    prepare_images,
    run_cases,
    runs,
)
from tests.helpers.digests import known_digests, machine, read_digests
from tests.helpers.mpi import ROOT, mpich, open_mpi
from tests.helpers.runs import assert_equal_runs

FAILS = {"diverging": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the prepared images of one of the cases lie."""
    directory = tmp_path_factory.mktemp("data")
    prepare_images(directory)
    return directory


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Where the logs of one process, without MPI, lie."""
    directory = tmp_path_factory.mktemp("alone")
    assert run_cases(directory, root) == {name: FAILS.get(name, 0) for name in CASES}
    assert read_log(directory / "unlabelled images.h5")["/round/accepted"][2:].any()
    for name in METHODS:
        run = read_log(directory / f"{name}.h5")
        owned = run["/clients/class_counts"] > 0
        uploaded = [owned[who].any(0) for who in run["/round/participants"]]
        assert not np.all(uploaded, axis=1).any(), "classes are absent from every round"
    return directory


def assert_known_digests(logs: Path) -> None:
    """Checks the results of all cases against those that were kept for this machine, if any were."""
    for name, digests in known_digests().get(machine(), {}).items():
        found = read_digests(logs / f"{name}.h5")
        assert [path for path in digests if found.get(path) != digests[path]] == [], name


def test_results_of_one_process_are_those_that_were_kept(alone: Path):
    if machine() not in known_digests():
        pytest.skip(f"no digests are kept for this machine ({machine()}); see tests/helpers/digests.py")
    assert_known_digests(alone)


def test_every_case_has_digests():
    """Machines that were not at hand when a case was added lack it."""
    kept = [digests.keys() for digests in known_digests().values()]
    assert all(names <= CASES.keys() for names in kept)
    assert CASES.keys() in kept


def test_habits_of_published_code_have_equal_bits(tmp_path: Path):
    options = [part for setting in HABITS for part in ("--set", setting)]
    for ranks in (1, 3):
        mpich().run(ranks, "-m", "hpcfl", "train", *options, "--out", tmp_path / f"{ranks}.h5")
    assert_equal_runs(tmp_path / "3.h5", tmp_path / "1.h5")


NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CH4_NETMOD": "ofi"}
"""Makes MPICH take one machine for two nodes that talk by OFI, which moves within calls of MPI only."""


@pytest.mark.parametrize(
    ("kind", "ranks", "environ"), [("mpich", 3, NODES), ("mpich", 21, {}), ("openmpi", 5, {})]
)  # starting 21 ranks takes most of a minute on two cores
def test_equal_bits(alone: Path, root: Path, tmp_path: Path, kind: str, ranks: int, environ: dict):
    mpi = {"mpich": mpich, "openmpi": open_mpi}[kind]()
    (tmp_path / "study.toml").write_text(STUDY)
    done = mpi.run(ranks, "-m", "tests.mpi.several", tmp_path, root, cwd=ROOT, env=os.environ | environ)
    codes = {name: FAILS.get(name, 0) for name in runs(ranks)} | ({"study": 1} if ranks <= FEW_RANKS else {})
    assert f"codes {codes}" in done.stdout, done.stdout + done.stderr
    for name in runs(ranks):
        assert_equal_runs(tmp_path / f"{name}.h5", alone / f"{'rare' if name in WAYS else name}.h5")
    run = read_log(tmp_path / "full.h5")
    assert run.attributes["ranks"] == ranks
    assert run.attributes["nodes"] == int(environ.get("MPIR_CVAR_NUM_CLIQUES", 1))
    assert (run["/round/bytes_mpi"] > 0).all()
    trained_by = read_log(tmp_path / "pinned.h5")["/client/rank"]
    for client in trained_by.T:
        assert len(set(client[client >= 0])) <= 1, "a pinned client moved"
    assert set(run["/client/rank"].ravel()) <= set(range(1, ranks))
    assert (run["/client/seconds"] > 0).all()
    assert_one_client_at_a_time(run)
    if ranks <= FEW_RANKS:
        _a_study_and_a_guest_too(done.stdout, tmp_path, ranks, alone / "full.h5")
    if ranks == 3:
        assert_known_digests(tmp_path)


def assert_one_client_at_a_time(run: Run) -> None:
    """Each rank begins a client's training after it has ended that of the one before, within the round."""
    columns = (run[f"/client/{name}"] for name in ("rank", "started", "seconds"))
    for ranks, started, seconds in zip(*columns, strict=True):
        for rank in set(ranks):
            order = np.flatnonzero(ranks == rank)[np.argsort(started[ranks == rank])]
            assert (started[order] >= 0).all()
            assert (started[order][1:] >= (started + seconds)[order][:-1]).all()


def _a_study_and_a_guest_too(said: str, tmp_path: Path, ranks: int, full: Path) -> None:
    names = [f"study/{cell}" for cell in ("ranks-r1", "ranks-r2", "ranks-r3", "other-lr=0.01")]
    for name in (*names, "guest", "everybody"):
        assert_equal_runs(tmp_path / f"{name}.h5", full)
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
