"""Heartbeats: how rank 0 writes and removes them, and what is refused as one."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from hpcfl.comm.serial import SerialCommunicator
from hpcfl.engine import progress
from hpcfl.engine.progress import ProgressLines
from hpcfl.log import heartbeat
from hpcfl.log.heartbeat import Heartbeat, HeartbeatThread, heartbeat_path, parse_heartbeat, read_heartbeat
from hpcfl.watch.poller import LogPoller
from hpcfl.watch.status import RunStatus
from tests.helpers.logs import new_log, words
from tests.helpers.runs import SHORT


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\0\0", b"{", b"[]", b"null", b"3", b'"live"', b"\xff\xfe", b"{}", b"[" * 100_000),
        b'{"time": NaN, "round": 1, "part": "train", "missing": [], "since": 0}',
        b'{"time": 1, "round": 1e400, "part": "train", "missing": [], "since": 0}',
        b'{"time": 1, "round": 1, "part": "\\u001b[2J", "missing": [], "since": 0}',
        b'{"time": 1, "round": 1, "part": "train", "missing": ["x"], "since": 0}',
        b'{"time": 1, "round": true, "part": "train", "missing": [], "since": 0}',
        b'{"time": 1, "round": 1, "part": "train", "missing": 7, "since": 0}',
        b'{"time": 1' + b"0" * 5000 + b', "round": 1, "part": "train", "missing": [], "since": 0}',
    ],
)
def test_what_is_no_sign_is_none(tmp_path, content):
    new_log(tmp_path / "run.h5")
    heartbeat_path(tmp_path / "run.h5").write_bytes(content)
    seen = LogPoller(tmp_path / "run.h5")()
    assert seen.heartbeat is None
    assert seen.run is not None


NUMBERS = some.integers(-5, 2 * 10**11) | some.integers() | some.floats() | some.booleans()
WORDS = some.sampled_from(["start", "train", "", "\x1b[2J", "two words"]) | some.text() | some.none()


@given(
    some.fixed_dictionaries(
        {"time": NUMBERS, "since": NUMBERS, "round": NUMBERS, "part": WORDS},
        optional={"missing": some.lists(NUMBERS, max_size=4) | NUMBERS | WORDS},
    )
)
def test_any_content_of_a_sign_is_refused_or_shown(value):
    found = parse_heartbeat(json.dumps(value).encode())
    if found is not None:
        assert (found.time, found.part, list(found.missing)) == (
            value["time"],
            value["part"],
            value["missing"],
        )
        shown = words(RunStatus(None, found, heartbeat_age=1.0))
        assert ("missing" in shown) == (bool(found.missing) and found.time - found.since >= 3)
        assert shown.replace("\n", "").isprintable()


def test_what_has_a_signs_name_but_is_no_file_is_none(tmp_path):
    os.mkfifo(heartbeat_path(tmp_path / "run.h5"))
    assert read_heartbeat(tmp_path / "run.h5") is None
    os.mkfifo(tmp_path / "pipe.h5")
    assert "not a regular file" in str(LogPoller(tmp_path / "pipe.h5")().problem)


class Waiting(SerialCommunicator):
    def missing_ranks(self) -> tuple[list[int], float]:
        return [3, 5], 12.5


def test_rank_0_leaves_signs_and_takes_them_away(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.02)
    log = tmp_path / "run.h5"
    heartbeat_path(log).write_text("left by a run that was killed")
    comm = Waiting()
    comm.round, comm.part = 9, "log"  # of the run before
    with HeartbeatThread(log, comm):
        while (first := read_heartbeat(log)) is None:
            time.sleep(0.005)
        comm.part, comm.round, comm.selected = "refine", 5, 20
        comm.count_trained(12)
        while (second := read_heartbeat(log)) is None or second.trained == 0:
            time.sleep(0.005)
    assert (first.round, first.part) == (0, "start")
    assert (second.round, second.part, second.missing, second.since) == (5, "refine", (3, 5), 12.5)
    assert (first.trained, first.selected, second.trained, second.selected) == (0, 0, 12, 20)
    assert 0 <= second.time - first.time < 10
    assert list(tmp_path.iterdir()) == []


def test_signs_that_cannot_be_written_harm_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.02)
    with HeartbeatThread(tmp_path / "nowhere" / "run.h5", SerialCommunicator()) as signer:
        time.sleep(0.05)
        assert signer.is_alive()
    (tmp_path / "run.h5.live").mkdir()
    with HeartbeatThread(tmp_path / "run.h5", SerialCommunicator()):
        time.sleep(0.05)
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5.live"]


def test_a_sign_does_not_follow_links(tmp_path, monkeypatch):
    """Neither the file nor the temporary file of the name that anybody could foresee."""
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.02)
    (tmp_path / "mine").write_text("mine")
    for name in ("run.h5.live", f"run.h5.live.{platform.node()}-{os.getpid()}.part"):
        (tmp_path / name).symlink_to("mine")
    with HeartbeatThread(tmp_path / "run.h5", SerialCommunicator()):
        time.sleep(0.1)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "run.h5.live").is_symlink()


def test_a_run_gives_signs_from_start_to_end(hpcfl, monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    seen: list[Heartbeat | None] = []
    original = ProgressLines.show_row

    def look(self: ProgressLines, t: int, row: dict) -> None:
        time.sleep(0.1)
        seen.append(read_heartbeat(Path("run.h5")))
        original(self, t, row)

    monkeypatch.setattr(ProgressLines, "show_row", look)
    assert hpcfl("train", *SHORT, "--out", "run.h5").exit_code == 0
    assert [found and (found.round, found.part, found.missing) for found in seen] == [
        (2, "log", ()),  # row 1 is complete after the broadcast that opens round 2
        (2, "log", ()),
    ]
    assert sorted(path.name for path in Path().iterdir()) == ["run.h5", "run.h5.ckpt"]


def test_a_long_round_is_never_silent(monkeypatch, capsys):
    """Lines: after a minute without one; the count of a round that is over does not stand for the next."""
    lines, comm = ProgressLines(3), SerialCommunicator()
    beat = Heartbeat(1.0, 2, "train", (), 0.0, trained=12, selected=20)
    lines.show_heartbeat(beat)
    assert capsys.readouterr().out == ""
    lines.last_line -= 61
    lines.show_heartbeat(beat)
    lines.show_heartbeat(beat)
    assert capsys.readouterr().out == "round 2/3  12/20 clients trained\n"
    one = Heartbeat(1.0, 2, "train", (), 0.0, trained=0, selected=1)
    assert progress.describe_heartbeat(one) == "0/1 client trained"
    comm.round = 2
    comm.count_trained(12)
    assert comm.num_trained() == 12
    comm.round = 3
    assert comm.num_trained() == 0
    shown = words(RunStatus(None, beat, heartbeat_age=1.0))
    assert "trained" not in shown  # there is no log yet


def test_the_bar_shows_the_clients_of_a_round(monkeypatch):
    monkeypatch.setattr(progress, "describe_row", lambda row: f"accuracy {row}")
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)

    def line() -> str:
        return re.split(r"[\r\n]|\x1b\[2K", screen.file.getvalue().rstrip())[-1]  # type: ignore[attr-defined]

    with progress.ProgressBar(4, screen) as bar:
        bar.show_heartbeat(Heartbeat(1.0, 1, "train", (), 0.0, trained=5, selected=20))
        assert line().startswith("round 1/4 5/20 clients trained  ")
        bar.show_row(0, {"": 1})
        assert re.match(r"round 1/4 +accuracy", line())
        bar.show_heartbeat(Heartbeat(1.0, 2, "train", (), 0.0, trained=12, selected=20))
        assert line().startswith("round 2/4 12/20 clients trained last: accuracy {'': 1}")


def test_the_bar_estimates_the_time_left_within_long_rounds():
    """Of 4 rounds with 20 clients: 5 clients in a minute are a round in 4 minutes."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with progress.ProgressBar(4, screen) as bar:
        assert isinstance(bar, progress.ProgressBar)
        now = 0.0
        bar.progress.get_time = lambda: now
        for trained in (0, 5, 10, 15):
            bar.show_heartbeat(Heartbeat(1.0, 1, "train", (), 0.0, trained=trained, selected=20))
            now += 60
    [task] = bar.progress.tasks
    assert task.time_remaining == 13 * 60


def test_watch_shows_the_clients_of_a_round(tmp_path):
    new_log(tmp_path / "run.h5")
    run = LogPoller(tmp_path / "run.h5")().run
    beat = Heartbeat(1.0, 2, "train", (), 0.0, trained=5, selected=20)
    bar = "━" * 7 + "─" * 23
    assert f"round 2, train: 5 of 20 clients trained {bar}" in words(RunStatus(run, beat, heartbeat_age=1.0))
    assert "trained" not in words(RunStatus(run, beat, heartbeat_age=100.0))
