"""What is known of a run: the age of the news, and whether it has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcfl.log.heartbeat import Heartbeat
from hpcfl.log.reader import read_log
from hpcfl.watch.poller import WATCHED, Snapshot
from hpcfl.watch.render import rows
from hpcfl.watch.status import SILENCE, RunStatus, StatusTracker
from tests.helpers.logs import HEARTBEAT, add, new_log, words


class Clock:
    """Two clocks that are set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


def test_ages_go_by_this_machines_clock_once_something_has_changed(tmp_path, monkeypatch):
    """The first look must trust the clock of the other machine, here 100 s behind; later ones need not."""
    monkeypatch.setattr("hpcfl.watch.status.time", clock := Clock())
    log = new_log(tmp_path / "run.h5")
    add(log)
    run = read_log(tmp_path / "run.h5", WATCHED)
    tracker = StatusTracker()
    heartbeat = Heartbeat(clock.time() - 100, 2, "train", (1,), clock.time() - 110)
    status = tracker.update(Snapshot(run, clock.time() - 50, heartbeat), 0.0)
    assert (status.heartbeat_age, status.seconds_unchanged, status.alive, status.silent) == (
        100,
        50,
        False,
        True,
    )
    assert status.seconds_waited == 10
    clock.now += 2
    heartbeat = Heartbeat(clock.time() - 100, 2, "train", (1,), clock.time() - 112)
    status = tracker.update(Snapshot(run, clock.time() - 50, heartbeat), 0.0)
    assert (status.heartbeat_age, status.seconds_unchanged, status.alive, status.silent) == (
        0,
        0,
        True,
        False,
    )
    clock.now += SILENCE
    status = tracker.update(None, clock.now - 5)
    assert (status.seconds_unanswered, status.log_age, status.silent) == (5, SILENCE, True)
    assert f"no sign of life for {SILENCE:.0f} s" in words(status)
    assert "the file system has not answered for 5 s" in words(status)
    assert "rank 0 waited last for rank 1 since" in words(status)


@pytest.mark.parametrize(
    ("status", "alive", "ended"),
    [
        ("running", True, ""),
        ("running", False, ""),
        ("finished", False, "finished"),
        ("finished", True, ""),  # extended, or about to leave
        ("stopped", False, "stopped"),
        ("stopped", True, ""),  # continued
        ("diverged", False, "diverged"),
    ],
)
def test_a_run_has_ended_when_its_log_says_so_and_rank_0_is_gone(tmp_path, status, alive, ended):
    log = new_log(tmp_path / "run.h5")
    log.close(status)
    run = read_log(tmp_path / "run.h5", WATCHED)
    assert RunStatus(run, HEARTBEAT, heartbeat_age=1.0 if alive else 60.0).ended == ended


@pytest.mark.parametrize(
    ("seconds", "waited", "overdue"), [(20.0, 30, False), (14.0, 30, True), (1.0, 10, False)]
)
def test_a_wait_is_no_warning_while_rounds_take_as_long(tmp_path, seconds, waited, overdue):
    """Rank 0 waits for the others while they train; only twice the time of a round is a reason to worry."""
    log = new_log(tmp_path / "run.h5")
    beat = replace(HEARTBEAT, since=HEARTBEAT.time - waited, trained=3, selected=20)
    status = RunStatus(read_log(tmp_path / "run.h5", WATCHED), beat, heartbeat_age=1.0)
    assert not status.overdue, "the first round may take a minute"
    add(log, round__seconds=seconds)
    status = replace(status, run=read_log(tmp_path / "run.h5", WATCHED))
    assert status.overdue == overdue
    styles = {label: style for label, _, style in rows(status, Path("run.h5"), 60)}
    assert styles["missing"] == ("bold red" if overdue else "")


def test_clients_of_a_round_that_is_over_are_not_shown(tmp_path):
    add(new_log(tmp_path / "run.h5"))
    run = read_log(tmp_path / "run.h5", WATCHED)
    for number, shown in ((1, False), (2, True)):
        beat = replace(HEARTBEAT, round=number, trained=3, selected=20)
        assert ("3 of 20 clients trained" in words(RunStatus(run, beat, heartbeat_age=1.0))) == shown
