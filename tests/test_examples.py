"""The programs of examples/ run as they stand, and say what they cost and how to start them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import read_log
from tests.helpers.mpi import ROOT, Mpi, mpich
from tests.helpers.runs import assert_equal_runs

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


def start(*command: object, cwd: Path) -> str:
    """Returns what a command prints."""
    environ = os.environ | {"MPLBACKEND": "Agg"}
    arguments = [sys.executable, *map(str, command)]
    done = subprocess.run(arguments, cwd=cwd, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_opens_with_what_it_shows_its_cost_and_its_command(path):
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert re.search(r"[Cc]osts|takes", text)
    assert f"\n    python examples/{path.name}" in text
    assert len(path.read_text().splitlines()) <= 70


def test_the_readme_lists_them():
    text = (EXAMPLES / "README.md").read_text()
    for path in (*PROGRAMS, EXAMPLES / "quickstart.ipynb"):
        assert f"({path.name})" in text


@pytest.mark.slow
def test_quick_start(tmp_path):
    said = start(EXAMPLES / "quickstart.py", cwd=tmp_path)
    last = read_log(tmp_path / "runs/example-fedproto.h5")["/round/accuracy"][-1]
    assert f"   25  {last:8.2%}" in said
    assert "of 20 clients are better with FedProto than alone" in said


@pytest.mark.slow
def test_own_network(tmp_path):
    said = start(EXAMPLES / "own_network.py", cwd=tmp_path)
    assert "client 0: own_network:depthwise with" in said
    here_and_logged = re.findall(r"([\d.]+%) here, ([\d.]+%) in the log", said)
    assert len(here_and_logged) == 2
    assert all(here == logged for here, logged in here_and_logged)


@pytest.mark.slow
def test_own_refinement(tmp_path):
    said = start(EXAMPLES / "own_refinement.py", cwd=tmp_path)
    assert said.count("accuracy") == 3
    start("-m", "hpcfl", "train", "--set", "federation.participation=5", "--out", "plain.h5", cwd=tmp_path)
    plain, without = (read_log(tmp_path / name) for name in ("plain.h5", "runs/example-slow-0.0.h5"))
    np.testing.assert_array_equal(plain["/round/accuracy"], without["/round/accuracy"])


@pytest.mark.slow
def test_own_algorithm_on_several_ranks(tmp_path):
    """Without momentum it is LG-FedAvg; 3 ranks give the bits of one."""
    start(EXAMPLES / "own_algorithm.py", cwd=tmp_path)
    settings = ("--set", "method.name=lg-fedavg", "--set", "train.lr=0.05")
    start("-m", "hpcfl", "train", *settings, "--out", "lg.h5", cwd=tmp_path)
    plain, without = (read_log(tmp_path / name) for name in ("lg.h5", "runs/example-momentum-0.0.h5"))
    np.testing.assert_allclose(plain["/round/accuracy"], without["/round/accuracy"], atol=0.005)


def test_under_mpirun(tmp_path):
    mpi: Mpi = mpich()
    (tmp_path / "one").mkdir()
    start(EXAMPLES / "own_algorithm.py", cwd=tmp_path / "one")
    done = mpi.run(3, "-m", "mpi4py", EXAMPLES / "own_algorithm.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy") == 3
    name = "runs/example-momentum-0.9.h5"
    assert_equal_runs(tmp_path / name, tmp_path / "one" / name)


@pytest.mark.slow
def test_own_data(tmp_path):
    said = start(EXAMPLES / "own_data.py", cwd=tmp_path)
    assert said.count("samples by class") == 6
    assert read_log(tmp_path / "runs/example-stripes.h5")["/round/accuracy"][-1] > 0.5
    start(EXAMPLES / "own_data.py", cwd=tmp_path)


@pytest.mark.slow
def test_study(tmp_path):
    """With one seed and two values of α, so that it is quick."""
    short = ("--set", "seed=[0]", "--set", "partition.alpha=[0.3, 10.0]", "--set", "federation.rounds=2")
    command = ("-m", "hpcfl", "study", "run", EXAMPLES / "study.toml", "--out", "runs/example-study", *short)
    start(*command, cwd=tmp_path)
    said = start(EXAMPLES / "study.py", cwd=tmp_path)
    assert "fedorgp α = 0.3: " in said
    assert (tmp_path / "runs/example-study/alpha.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    (tmp_path / "cells.py").write_text("\n".join(cells))
    assert re.search(r"\d+ better, \d+ worse, of 20", start("cells.py", cwd=tmp_path))
