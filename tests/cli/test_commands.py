from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from hpcfl.log.reader import read_log
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.models.registry import ARCHITECTURES, GROUPS
from hpcfl.runtime.deadline import Deadline
from hpcfl.utils.formatting import plural
from tests.helpers.mpi import mpich
from tests.helpers.runs import SHORT
from tests.helpers.terminal import on_a_terminal


def test_one_plain_line_per_round_where_there_is_no_terminal(hpcfl):
    lines = hpcfl("train", *SHORT).output.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["round 1/2", "round 2/2"]
    for word in ("accuracy", " s ", "20 clients", "up ", "down "):
        assert word in lines[2]
    assert "2 rounds in" in lines[3]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(("stop", "when"), [(1, None), (2, ""), (3, " in round 2")])
def test_the_last_line_of_a_stopped_run_has_the_last_evaluated_accuracy(hpcfl, monkeypatch, stop, when):
    rounds = count(1)
    monkeypatch.setattr(Deadline, "too_late_for_next", lambda self, seconds: next(rounds) == stop)
    settings = ("--set=federation.rounds=4", "--set=log.evaluate_every=2")
    done = hpcfl("train", *SHORT, *settings, "--out", "a.h5")
    assert done.exit_code == 75
    facts, log = done.output.splitlines()[-2].split("; ", 1)
    assert facts.startswith(f"hpcfl: {plural(stop, 'round')} in ")
    if when is None:
        assert log == "log: a.h5"
    else:
        share = f"{read_log('a.h5')['/round/accuracy'][1]:.2%}"
        assert log == f"accuracy {share}{when}, best {share} in round 2; log: a.h5"


def test_the_name_of_a_log_follows_from_the_configuration(hpcfl, monkeypatch):
    hpcfl("train", *SHORT)
    monkeypatch.setenv("HPCFL_DATA", "elsewhere")  # where data lies makes no other run
    again = hpcfl("train", *SHORT)
    assert again.exit_code == 0
    assert "is finished: 2 rounds" in again.output
    hpcfl("train", *SHORT, "--set=seed=1")
    assert len(list(Path().glob("fedproto-spiral-*.h5"))) == len(list(Path().glob("*.h5.ckpt"))) == 2
    assert len(list(Path().iterdir())) == 4


def test_a_finished_run_says_so_and_changes_nothing(hpcfl):
    hpcfl("train", *SHORT, "--out", "a.h5")
    before = Path("a.h5").read_bytes()
    done = hpcfl("train", *SHORT, "--out", "a.h5")
    assert (done.exit_code, Path("a.h5").read_bytes()) == (0, before)


@pytest.mark.parametrize("damage", ["a bit", "cut"])
def test_a_damaged_log_is_kept_aside_by_fresh_alone(hpcfl, damage):
    log = Path("a.h5")
    assert hpcfl("train", *SHORT, "--out", log).exit_code == 0
    data = bytearray(log.read_bytes())
    data[9000] ^= 4
    log.write_bytes(data if damage == "a bit" else data[:9000])
    before = log.read_bytes()
    done = hpcfl("train", *SHORT, "--out", log)
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert done.output.startswith("hpcfl: cannot read a.h5: ")
    assert done.output.endswith("; --fresh keeps it aside and runs again\n")
    assert log.read_bytes() == before
    assert hpcfl("train", *SHORT, "--out", log, "--fresh").exit_code == 0
    assert Path("a~1.h5").read_bytes() == before
    log.write_bytes(b"no log at all")
    for more in ([], ["--fresh"]):
        done = hpcfl("train", *SHORT, "--out", log, *more)
        assert (done.exit_code, "--fresh" in done.output) == (2, False)


def test_fresh_keeps_the_old_log_aside(hpcfl):
    for _ in range(3):
        assert hpcfl("train", *SHORT, "--out", "a.h5", "--fresh").exit_code == 0
    logs = ["a.h5", "a~1.h5", "a~2.h5"]
    assert sorted(p.name for p in Path().iterdir()) == sorted([*logs, *(f"{log}.ckpt" for log in logs)])
    assert {read_log(log).status for log in logs} == {"finished"}


def test_a_log_of_another_configuration_is_refused_with_the_difference(hpcfl):
    hpcfl("train", *SHORT, "--out", "a.h5")
    before = Path("a.h5").read_bytes()
    done = hpcfl("train", *SHORT, "--set=train.lr=0.5", "--out", "a.h5")
    assert done.exit_code == 2
    assert "train.lr = 0.01 there, 0.5 here" in done.output
    assert Path("a.h5").read_bytes() == before


def test_a_diverged_run_is_not_taken_for_a_finished_one(hpcfl):
    assert hpcfl("train", *SHORT, "--set=train.lr=1e30", "--out", "a.h5").exit_code == 1
    done = hpcfl("train", *SHORT, "--set=train.lr=1e30", "--out", "a.h5")
    assert done.exit_code == 2
    assert "a.h5 diverged in round 1" in done.output


def test_the_catalogue_lists_every_name(hpcfl):
    listed = hpcfl("catalog").output
    for name in (*CATALOGUE, *ARCHITECTURES, *GROUPS, "spiral"):
        assert name in listed


@pytest.mark.slow
@pytest.mark.parametrize("where", ["| head -n 1", ">&-", "2>&- >&-"])
def test_a_reader_that_leaves_or_never_was_does_not_end_the_run(tmp_path, where):
    settings = " ".join([*SHORT, "--set=federation.rounds=60"])
    command = f"{sys.executable} -m hpcfl train {settings} --out a.h5 {where}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    assert read_log(tmp_path / "a.h5").status == "finished"


def test_an_encoding_without_our_characters_does_not_end_the_run(tmp_path):
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "hpcfl", "train", *SHORT, "--set=log.evaluate_every=2", "--out", "a.h5"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "accuracy ?" in done.stdout


@pytest.mark.mpi
def test_usage_errors_are_printed_once_under_mpirun(tmp_path):
    for arguments in (["train", "--bogus"], ["trian"], ["show", "nothing.h5"]):
        done = mpich().run(3, "-m", "hpcfl", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if "rror" in line or "cannot read" in line]
        assert len(said) == 1, done.stderr


@pytest.mark.mpi
def test_a_terminal_gets_a_live_bar_alone_and_under_mpirun(tmp_path):
    settings = [*SHORT, "--set=federation.rounds=20"]
    alone = on_a_terminal([sys.executable, "-m", "hpcfl", "train", *settings, "--out", "a.h5"], tmp_path, 80)
    command = mpich().command(2, "-m", "hpcfl", "train", *settings, "--out", "b.h5")
    for seen in (alone, on_a_terminal(command, tmp_path, 120)):
        assert "\x1b[" in seen
        assert "round 19/20" in seen
        assert "round 20/20" in seen
        assert "accuracy" in seen
        assert "20 rounds in" in seen
    assert read_log(tmp_path / "b.h5").attributes["ranks"] == 2
