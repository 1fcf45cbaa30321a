"""The examples of docs/extending.md, written to files and run by the page's own commands, word for word."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import Run, read_log
from tests.helpers.digests import read_digests
from tests.helpers.mpi import HERE, ROOT
from tests.helpers.runs import assert_equal_runs

PAGE = (ROOT / "docs" / "extending.md").read_text()
NAMED = re.compile(r"^```\w+\n# (\S+\.(?:py|toml))\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in SHELL.findall(PAGE) for line in block.splitlines()]
WITHOUT_MPI = not (HERE / "mpirun").exists()


def run(directory: Path, command: str) -> subprocess.CompletedProcess:
    """Runs a command of the page in a directory, with this Python's hpcfl."""
    program = f"{sys.executable} -m hpcfl"
    line = re.sub(r"^(mpirun -n 3 )?hpcfl", lambda found: f"{found[1] or ''}{program}", command)
    return subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env={"PATH": f"{HERE}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the page's files, in which all its commands have been run."""
    directory = tmp_path_factory.mktemp("extending")
    for name, text in NAMED.findall(PAGE):
        (directory / name).write_text(text)
    said = []
    for command in COMMANDS:
        if WITHOUT_MPI:
            command = command.removeprefix("mpirun -n 3 ")
        done = run(directory, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    (directory / "said").write_text("\n".join(said))
    return directory


def log(directory: Path, name: str) -> Run:
    return read_log(directory / f"{name}.h5")


def test_the_page_has_both_examples_and_their_commands():
    assert {"ideas.py", "gh.py", "whiten.toml", "gh.toml"} <= {name for name, _ in NAMED.findall(PAGE)}
    assert sum(command.startswith("mpirun") for command in COMMANDS) == 2


def test_whitening_is_equal_on_one_process_and_three(directory):
    assert_equal_runs(directory / "one.h5", directory / "three.h5")
    assert "equal" in (directory / "said").read_text()
    assert log(directory, "three").attributes["ranks"] == (1 if WITHOUT_MPI else 3)
    assert str(log(directory, "one").attributes["method"]).endswith("strength 0.5")


def test_whitening_makes_prototypes_vary_equally(directory):
    """Of 6 prototypes, 5 centred singular values are left; with strength 1 they are equal."""
    spread = {}
    for name in ("one", "full"):
        proto_KD = log(directory, name)["/prototypes/global"][-1].astype(float)
        values = np.linalg.svd(proto_KD - proto_KD.mean(0), compute_uv=False)[:5]
        spread[name] = values.max() / values.min()
    assert spread["full"] == pytest.approx(1, abs=1e-4)
    assert spread["one"] > 1.1


def test_fedgh_as_a_plug_in_is_the_built_in_one(directory):
    own, builtin = (read_digests(directory / f"{name}.h5") for name in ("mine", "builtin"))
    assert own == {path: digest for path, digest in builtin.items() if path != "/refine/iterations"}
    assert "/refine/loss" in own
    assert np.isfinite(log(directory, "mine")["/refine/loss"]).all()


def test_the_metric_of_a_client_is_logged(directory):
    counted = log(directory, "counted")
    want = np.where(counted["/round/participants"], (counted["/clients/class_counts"] > 0).sum(1), np.nan)
    np.testing.assert_array_equal(counted["/client/classes"], want)
    for path, digest in read_digests(directory / "mine.h5").items():
        assert read_digests(directory / "counted.h5")[path] == digest


def test_the_study_has_the_run_of_the_command(directory):
    for strength in ("0.1", "1.0"):
        assert log(directory, f"strengths/strength-{strength}").status == "finished"
    assert_equal_runs(directory / "strengths" / "strength-1.0.h5", directory / "full.h5")


def test_a_wrong_option_is_refused_as_the_page_says(directory):
    [command] = re.findall(r"`(hpcfl train [^`]*)` is refused", PAGE)
    done = run(directory, command)
    assert done.returncode == 2
    assert done.stderr == "hpcfl: method.strength = 2: must be less than or equal to 1\n"


def test_an_edited_source_is_refused(directory, tmp_path):
    for name in ("ideas.py", "whiten.toml", "one.h5"):
        shutil.copy(directory / name, tmp_path)
    with open(tmp_path / "ideas.py", "a") as file:
        file.write("\n# edited\n")
    done = run(tmp_path, "hpcfl train whiten.toml --out one.h5")
    assert done.returncode == 2
    assert "ideas has changed since; --fresh keeps it aside" in done.stderr
    done = run(tmp_path, "hpcfl train whiten.toml --out one.h5 --fresh")
    assert done.returncode == 0, done.stderr
    assert_equal_runs(tmp_path / "one.h5", directory / "one.h5")


def test_the_attributes_that_the_page_names_exist():
    from hpcfl.methods.aggregate import Aggregate
    from hpcfl.methods.refine.base import Refinement

    for kind, base in (("a refinement", Refinement), ("an aggregation", Aggregate)):
        table = PAGE.partition(f"| attribute of {kind} |")[2].partition("\n\n")[0]
        names = re.findall(r"`(\w+)", "".join(row.split("|")[1] for row in table.splitlines()[2:]))
        assert names
        assert all(hasattr(base, name) for name in names)


def test_the_methods_that_the_page_names_are_those_of_the_interface():
    from hpcfl.algorithms.algorithm import Algorithm

    table = PAGE.partition("| method | where and when |")[2].partition("\n\n")[0]
    public = {name for name in vars(Algorithm) if callable(getattr(Algorithm, name)) and name[0] != "_"}
    assert set(re.findall(r"`(\w+)\(", table)) == public - {"Options"}
    for row in table.splitlines()[2:]:
        for name, arguments in re.findall(r"`(\w+)\(([^)]*)\)`", row.split("|")[1]):
            code = getattr(Algorithm, name).__code__
            assert code.co_varnames[1 : code.co_argcount] == tuple(filter(None, arguments.split(", ")))
