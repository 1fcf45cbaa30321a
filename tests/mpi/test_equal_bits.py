"""`result` datasets are equal bit for bit on any number of ranks and with either MPI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcfl import job
from hpcfl.log.reader import read
from tests.conftest import ROOT, mpich, open_mpi
from tests.mpi.cases import CASES, METHODS, WAYS, prepare_images, results, runs

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
        assert job.train(
            None, [*settings, f"data.root={root}"], str(directory / f"{name}.h5"), False
        ) == FAILS.get(name, 0)
    assert read(directory / "unlabelled images.h5")["/round/accepted"][2:].any()
    for name in METHODS:
        run = read(directory / f"{name}.h5")
        owned = run["/clients/class_counts"] > 0
        uploaded = [owned[who].any(0) for who in run["/round/participants"]]
        assert not np.all(uploaded, axis=1).any(), "classes are absent from every round"
    return {name: results(directory / f"{name}.h5") for name in CASES}


@pytest.mark.parametrize(
    ("kind", "ranks"), [("mpich", 3), ("mpich", 5), ("mpich", 21), ("openmpi", 5)]
)  # starting 21 ranks takes most of a minute on two cores
def test_equal_bits(alone: dict[str, dict[str, bytes]], root: Path, tmp_path: Path, kind: str, ranks: int):
    mpi = {"mpich": mpich, "openmpi": open_mpi}[kind]()
    done = mpi.run(ranks, "-m", "tests.mpi.several", tmp_path, root, cwd=ROOT)
    codes = {name: FAILS.get(name, 0) for name in runs(ranks)}
    assert f"codes {codes}" in done.stdout, done.stdout + done.stderr
    for name in codes:
        got, want = results(tmp_path / f"{name}.h5"), alone["rare" if name in WAYS else name]
        different = [path for path in got if got[path] != want[path]]
        assert not different, f"{name} on {ranks} ranks"
    run = read(tmp_path / "full.h5")
    assert run.attributes["ranks"] == ranks
    assert (run["/round/bytes_mpi"] > 0).all()
    trained_by = read(tmp_path / "pinned.h5")["/client/rank"]
    for client in trained_by.T:
        assert len(set(client[client >= 0])) <= 1, "a pinned client moved"
    assert set(run["/client/rank"].ravel()) <= set(range(1, ranks))
    assert (run["/client/seconds"] > 0).all()
