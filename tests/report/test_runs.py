"""`hpcfl show`: one run at a glance, several side by side."""

import re
from pathlib import Path

import numpy as np
import pytest

from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.log.target import ToTarget
from hpcfl.report.wide_table import print_wide
from hpcfl.runtime.lock import RunLock
from tests.helpers.logs import add, new_log
from tests.helpers.runs import SHORT


def test_show_prints_one_run_at_a_glance_and_several_side_by_side(hpcfl):
    hpcfl("train", *SHORT, "--out", "a.h5")
    hpcfl("train", *SHORT, "--set=method.name=local", "--out", "b.h5")
    one = hpcfl("show", "a.h5").output
    accuracy = f"{100 * read_log('a.h5')['/round/accuracy'][-1]:.2f}%"
    for part in (
        "finished, 2 of 2 rounds",
        "aggregate weighted, refine none, anchor round, distance mse, weight 30.0",
        accuracy,
        "5 mlp_64",
        "diverged",
    ):
        assert part in one
    two = hpcfl("show", "a.h5", "b.h5").output.splitlines()
    assert accuracy in two[1]
    assert "local" in two[2]
    assert "–" in two[2]  # no global prototypes
    missing = hpcfl("show", "nothing.h5")
    assert missing.exit_code == 2
    assert missing.output == "hpcfl: cannot read nothing.h5: No such file or directory\n"


def test_a_name_is_shown_as_it_is(hpcfl):
    hpcfl("train", *SHORT, "--out", "[bold]b:smile:.h5")
    shown = hpcfl("show", "[bold]b:smile:.h5")
    assert "[bold]b:smile:.h5: finished" in shown.output


def test_what_a_run_needed_to_reach_an_accuracy(hpcfl):
    """Rounds 1 to 4 with accuracies 0.2, none, 0.7, 0.5; up 1, 10, 100, 1000 bytes, down ten times that."""
    log = new_log(Path("run.h5"))
    for t, accuracy in enumerate([0.2, np.nan, 0.7, 0.5]):
        costs = {"round__bytes_up": 10**t, "round__bytes_down": 10 ** (t + 1), "round__seconds": 0.5}
        costs |= {"virtual__seconds": 2.0, "virtual__joules": np.nan}
        add(log, accuracy, round__train_accuracy=t / 4, **costs)
    run = read_log("run.h5")
    assert run.to_target(0.2) == ToTarget(1, 1, 10, 0.5, 2.0)
    assert run.to_target(0.6) == ToTarget(3, 111, 1110, 1.5, 6.0)
    assert run.to_target(0.71) is None
    assert run.to_target(0.25, "/round/train_accuracy") == ToTarget(2, 11, 110, 1.0, 4.0)
    with pytest.raises(BadInput, match="/client/accuracy does not hold one value per round"):
        run.to_target(0.5, "/client/accuracy")
    log.close("finished")


def test_runs_that_differ_in_a_key_are_told_apart(hpcfl):
    hpcfl("train", *SHORT, "--out", "a.h5")
    hpcfl("train", *SHORT, "--set=partition.alpha=0.5", "--set=method.refine=thomson", "--out", "b.h5")
    hpcfl("train", *SHORT, "--set=train.lr=0.02", "--set=runtime.stall_minutes=9", "--out", "c.h5")
    shown = [" ".join(line.split()) for line in hpcfl("show", "a.h5", "b.h5", "c.h5").output.splitlines()]
    start = shown.index("They differ in:")
    assert shown[start + 1 : shown.index("", start)] == [
        "partition.alpha 0.1: a.h5, c.h5; 0.5: b.h5",
        "train.lr 0.01: a.h5, b.h5; 0.02: c.h5",
        "method.refine default: a.h5, c.h5; thomson: b.h5",
        "runtime.stall_minutes 0.0: a.h5, b.h5; 9.0: c.h5 (without effect on results)",
    ]
    assert "These runs have the same configuration." in hpcfl("show", "a.h5", "a.h5").output


def test_several_runs_fit_80_columns_without_cutting_a_number(hpcfl, monkeypatch):
    """A wide and an 80-column screen show the same numbers."""
    long = f"{'a-long-name-' * 5}.h5"
    hpcfl("train", *SHORT, "--out", long)
    hpcfl("train", *SHORT, "--set=method.name=local", "--out", "b.h5")
    wide = hpcfl("show", long, "b.h5", "--target=0.1").output
    monkeypatch.setenv("COLUMNS", "80")
    narrow = hpcfl("show", long, "b.h5", "--target=0.1").output
    tables, _, sentences = narrow.partition("one seed:")
    assert max(map(len, tables.splitlines())) <= 80
    assert "…" not in tables
    assert sentences
    is_number = re.compile(r"[−+]?[\d.]+%?")
    assert set(filter(is_number.fullmatch, wide.split())) == set(filter(is_number.fullmatch, narrow.split()))


def test_a_killed_run_is_unfinished_and_one_with_a_job_is_running(hpcfl):
    log = new_log(Path("killed.h5"))
    names = ["host", "nodes", "cores", "mpi", "ranks", "device", "placement", "arena", "method", "end"]
    log.attributes.update(dict.fromkeys(names, ""))
    add(log)
    hpcfl("train", *SHORT, "--out", "b.h5")
    assert "killed.h5: unfinished, 1 of 25 rounds" in hpcfl("show", "killed.h5").output
    side_by_side = hpcfl("show", "killed.h5", "b.h5").output
    assert "1 of 25" in side_by_side
    assert "\nunfinished: killed.h5\n" in side_by_side
    lock = RunLock(Path("killed.h5"))
    lock.acquire()
    assert "killed.h5: running, 1 of 25 rounds" in hpcfl("show", "killed.h5").output
    lock.release()
    log.close("finished")


def test_the_file_of_a_whole_study_is_passed_over(hpcfl, study):
    runs = sorted(map(str, study.glob("*.h5")))
    shown = hpcfl("show", *runs)
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"passed over: {study / 'study.h5'} is a whole study; hpcfl show {study}")


def test_columns_that_just_fit_do_not_fold_names(monkeypatch, capsys):
    """A table that is as wide as the screen has no gap after its last column."""
    headings, rows = ["run", "method", *"abcdef"], [["refine.h5", "fedproto", *6 * ["12.34%"]]]
    for columns in range(50, 90):
        monkeypatch.setenv("COLUMNS", str(columns))
        print_wide(headings, rows, 2)
        lines = capsys.readouterr().out.splitlines()
        assert all(line.startswith(("run  ", "refine.h5  fedproto  ")) for line in lines if line)
        assert max(map(len, lines)) <= columns
