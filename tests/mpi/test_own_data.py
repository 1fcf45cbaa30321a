"""A user's own data that are no images: prepared, trained by our and by own networks, on 1 and on 3 ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import hpcfl
from hpcfl.log.reader import read_log
from tests.helpers.mpi import ROOT, mpich
from tests.helpers.runs import assert_equal_runs
from tests.mpi.own_data import CASES, main


def prepare_all(hpcfl_command, root: Path) -> None:
    """Prepares sensor windows (.npz), a table (.csv), token numbers (.npz) and a torch Dataset."""
    random = np.random.default_rng(5)
    y = np.arange(600) % 4
    steps = np.arange(40)
    x = np.sin(steps * (0.1 + 0.2 * y[:, None, None]) + random.random((600, 3, 1))) * 2 + 20
    np.savez(root / "windows.npz", x=x.astype(np.float32), y=y)
    rows = random.normal(size=(600, 6)) + 5 * np.eye(6)[y]
    lines = (",".join(f"{value:.4f}" for value in row) + f",kind {k}" for row, k in zip(rows, y, strict=True))
    (root / "table.csv").write_text("\n".join(["a,b,c,d,e,f,label", *lines]))
    token = random.integers(0, 50, (600, 7))
    token[:, 3:] = y[:, None]
    np.savez(root / "tokens.npz", x=token, y=y)
    for file in ("windows.npz", "table.csv", "tokens.npz"):
        name = file.partition(".")[0]
        done = hpcfl_command("data", "prepare", name, "--source", root / file, "--root", root)
        assert done.exit_code == 0, done.output
    images = torch.from_numpy(x[:, :, None, :32].astype(np.float32))
    hpcfl.prepare("dataset", TensorDataset(images, torch.from_numpy(y)), root=root)


@pytest.mark.slow
def test_own_data_learn_and_give_equal_bits_on_three_ranks(hpcfl, tmp_path):
    prepare_all(hpcfl, tmp_path)
    main(str(tmp_path))
    done = mpich().run(3, "-m", "tests.mpi.own_data", tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    for case in CASES:
        assert_equal_runs(tmp_path / f"{case}-ranks.h5", tmp_path / f"{case}.h5")
        accuracy = read_log(tmp_path / f"{case}.h5")["/round/accuracy"]
        assert accuracy[-1] > 0.4, f"{case}: chance is 0.25, not {accuracy}"
