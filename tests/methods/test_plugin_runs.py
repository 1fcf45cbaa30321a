"""Runs with parts and algorithms from outside: equal bits, restarts, failures, entry points, edited code."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import hpcfl as hpcfl_package
from hpcfl.log.reader import read_log
from tests.helpers.mpi import ROOT, mpich
from tests.helpers.own_code import HELPER, IDEAS, SHORT, start, train, write_ideas
from tests.helpers.runs import assert_equal_runs

DISTRIBUTION = {
    "METADATA": "Metadata-Version: 2.1\nName: own-plugins\nVersion: 1.0\n",
    "entry_points.txt": "[hpcfl.methods]\nown-shrink = own_ideas:Shrink\nown-means = own_ideas:Means [x]\n"
    "own-angle = own_ideas : angle\nown-wrong = own_ideas\n",
}


# --- runs


def test_parts_are_equal_alone_and_under_mpirun_and_in_a_study(tmp_path):
    """A refinement with a state, an aggregation that needs counts, a distance; then an algorithm."""
    write_ideas(tmp_path)
    parts = ["method.refine=own_ideas:Shrink", "method.strength=0.9", "method.aggregate=own_ideas:Counts"]
    parts += ["method.distance=own_ideas:angle"]
    mpi = mpich()
    for out, settings in (("parts", parts), ("means", ["method.name=own_ideas:Means"])):
        done = train(tmp_path, *settings, out=f"{out}.h5")
        assert done.returncode == 0, done.stderr
        command = mpi.command(3, "-m", "hpcfl", "train", "--out", f"{out}3.h5")
        done = start(tmp_path, command, *settings)
        assert done.returncode == 0, done.stderr
        assert_equal_runs(tmp_path / f"{out}.h5", tmp_path / f"{out}3.h5")
    run = read_log(tmp_path / "parts.h5")
    assert str(run.attributes["method"]).startswith("aggregate own_ideas:Counts, refine own_ideas:Shrink")
    assert str(run.attributes["method"]).endswith("strength 0.9")
    assert (run["/round/bytes_side"] > 0).all(), "counts travel"
    assert {key for key in run.attributes if key.startswith("checksum_code")} == {
        "checksum_code_own_ideas",
        "checksum_code_own_helper",
    }
    sets = "\n".join(line.replace("=", " = ", 1) for line in SHORT)
    names = {"aggregate": "Counts", "distance": "angle", "refine": "Shrink"}
    quoted = "\n".join(f"method.{key} = 'own_ideas:{name}'" for key, name in names.items())
    (tmp_path / "study.toml").write_text(
        f"[set]\n{sets}\n{quoted}\n[[block]]\nname = 'b'\ngrid.method.strength = [0.9, 0.8]\n"
    )
    study = [sys.executable, "-m", "hpcfl", "study", "run", "study.toml", "--out", "study"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(study, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_equal_runs(tmp_path / "study" / "b-0.9.h5", tmp_path / "parts.h5")
    (tmp_path / "own_helper.py").write_text(HELPER + "\n# edited\n")
    done = subprocess.run(study, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert "own_helper has changed since" in done.stdout + done.stderr


def test_a_killed_run_goes_on_with_the_state_of_its_parts(tmp_path):
    write_ideas(tmp_path)
    settings = ["method.refine=own_ideas:Shrink", "runtime.checkpoint_rounds=1", "federation.rounds=40"]
    assert train(tmp_path, *settings, out="whole.h5").returncode == 0
    assert train(tmp_path, *settings, out="parts.h5", env={"OWN_KILL": "1"}).returncode == -9
    done = train(tmp_path, *settings, out="parts.h5")
    assert "continues after round " in done.stdout + done.stderr
    assert_equal_runs(tmp_path / "parts.h5", tmp_path / "whole.h5")


def test_a_variant_of_a_prototype_method_keeps_its_keys(tmp_path):
    write_ideas(tmp_path)
    settings = ["method.name=own_ideas:Noisy", "method.refine=thomson", "method.iterations=3"]
    done = train(tmp_path, *settings, "method.noise=0.2")
    assert done.returncode == 0, done.stderr
    run = read_log(tmp_path / "run.h5")
    assert "refine thomson" in str(run.attributes["method"])
    assert "iterations 3, stopping tangent, " in str(run.attributes["method"])
    assert str(run.attributes["method"]).endswith(", noise 0.2")
    done = train(tmp_path, *settings, "method.noise=0.2", "method.forget=true")
    assert done.returncode == 2
    assert "another configuration" in done.stderr


def test_the_log_has_a_file_name_without_a_colon(tmp_path):
    write_ideas(tmp_path)
    done = start(tmp_path, [sys.executable, "-m", "hpcfl", "train"], "method.name=own_ideas:Means")
    assert done.returncode == 0, done.stderr
    [log] = tmp_path.glob("*.h5")
    assert log.name.startswith("own_ideas.Means-spiral-")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("method.refine=own_ideas:FailsOnServer", "the server's line"),
        ("method.name=own_ideas:FailsOnClient", "the client's line"),
        ("method.name=own_ideas:FailsAtStart", "the line at the start"),
    ],
)
def test_an_exception_during_the_run_shows_the_users_line_and_ends_all_ranks(tmp_path, settings, line):
    write_ideas(tmp_path)
    alone = [[sys.executable]] if "Client" in settings else []
    for command in (*alone, mpich().command(3)):
        done = start(tmp_path, [*command, "-m", "hpcfl", "train", "--out", "run.h5", "--fresh"], settings)
        assert done.returncode == 1, done.stderr
        assert f'raise ZeroDivisionError("own mistake")  # {line}' in done.stderr
        number = next(n for n, text in enumerate(IDEAS.splitlines(), 1) if text.endswith(f"# {line}"))
        assert f'own_ideas.py", line {number}' in done.stderr
        assert "ZeroDivisionError: own mistake" in done.stderr


# --- entry points


def test_entry_points_of_an_installed_package(tmp_path):
    installed, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    (installed / "own_plugins-1.0.dist-info").mkdir(parents=True)
    write_ideas(installed)
    for name, text in DISTRIBUTION.items():
        (installed / "own_plugins-1.0.dist-info" / name).write_text(text)
    path = {"PYTHONPATH": f"{ROOT}:{installed}"}
    for name in ("method.refine=own-shrink", "method.name=own-means", "method.distance=own-angle"):
        done = train(work, name, out=f"{name}.h5", env=path)
        assert done.returncode == 0, done.stderr
    assert "checksum_code_own_helper" in read_log(work / "method.refine=own-shrink.h5").attributes
    done = train(work, "method.refine=own_ideas:Shrink", out="path.h5", env=path)
    assert_equal_runs(work / "path.h5", work / "method.refine=own-shrink.h5")
    done = train(work, "method.refine=own-wrong", env=path)
    assert done.returncode == 2
    assert done.stderr == "hpcfl: entry point 'own-wrong' of hpcfl.methods: 'own_ideas' is not module:name\n"
    done = train(work, "method.refine=own-shrnk", env=path)
    assert done.returncode == 2
    assert "(nearest: own-shrink)" in done.stderr
    done = train(work, "method.refine=own-means", env=path)
    assert done.returncode == 2
    assert "own_ideas:Means" in done.stderr
    catalog = [sys.executable, "-m", "hpcfl", "catalog"]
    done = subprocess.run(catalog, env=os.environ | path, capture_output=True, text=True)
    assert "own-shrink  own_ideas:Shrink" in done.stdout
    done = subprocess.run([*catalog, "own-shrink"], env=os.environ | path, capture_output=True, text=True)
    assert "The factor of a round." in done.stdout


# --- code is part of a run


def test_an_edited_source_of_a_run_is_refused(tmp_path):
    write_ideas(tmp_path)
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\ndef tiny(shape, d):\n    return nn.Linear(shape[0], d)\n"
    )
    settings = ["method.refine=own_ideas:Shrink", "models.list=['own_nets:tiny']"]
    assert train(tmp_path, *settings, "federation.rounds=1").returncode == 0
    (tmp_path / "own_unrelated.py").write_text("x = 1\n")
    done = train(tmp_path, *settings)
    assert done.returncode == 0, done.stderr
    for name in ("own_helper", "own_ideas", "own_nets"):
        file = tmp_path / f"{name}.py"
        text = file.read_text()
        file.write_text(text + "\n")
        for rounds in ("federation.rounds=3", "federation.rounds=4"):
            done = train(tmp_path, *settings, rounds)
            assert done.returncode == 2, "of a finished run, and of one that would go on"
            assert done.stderr == (
                f"hpcfl: run.h5 is a run with other code: {name} has changed since; --fresh keeps it aside "
                "and runs again, or choose another --out\n"
            )
        file.write_text(text)
    assert train(tmp_path, *settings).returncode == 0, "as it was again"
    (tmp_path / "own_helper.py").write_text(HELPER + "\n")
    assert train(tmp_path, *settings, more=("--fresh",)).returncode == 0
    assert (tmp_path / "run~1.h5").exists()


def test_a_rank_that_sees_other_code_is_refused(tmp_path):
    for name in ("mine", "other", "work"):
        (tmp_path / name).mkdir()
    write_ideas(tmp_path / "mine")
    (tmp_path / "other" / "own_helper.py").write_text(HELPER + "\n# another\n")
    (tmp_path / "work" / "start.sh").write_text(
        'if [ "$PMI_RANK" = 1 ]; then export PYTHONPATH=$OTHER:$PYTHONPATH; fi\nexec "$@"\n'
    )
    mpi = mpich()
    command = [str(mpi.bin / "mpirun"), "-n", "3", "sh", "start.sh", sys.executable, "-m", "hpcfl", "train"]
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path / 'mine'}", "OTHER": str(tmp_path / "other")}
    done = start(tmp_path / "work", [*command, "--out", "run.h5"], "method.refine=own_ideas:Shrink", env=path)
    assert done.returncode == 2
    assert done.stderr.count("the ranks read different configurations, data, splits or code") == 1


def test_from_python_other_loaded_modules_do_not_count(ideas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_loaded.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_loaded")
    settings = [*SHORT, "federation.rounds=1", "method.refine=own_ideas:Shrink"]
    run = hpcfl_package.train(None, out="run.h5", settings=settings)
    assert run is not None
    assert {key for key in run.attributes if key.startswith("checksum_code")} == {
        "checksum_code_own_ideas",
        "checksum_code_own_helper",
    }
