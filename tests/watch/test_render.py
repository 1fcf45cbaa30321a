"""What is shown, as a picture and in plain lines."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from hpcfl.log.heartbeat import Heartbeat
from hpcfl.log.reader import read_log
from hpcfl.utils.formatting import format_duration, format_ranges
from hpcfl.watch import command
from hpcfl.watch.poller import WATCHED, LogPoller
from hpcfl.watch.render import render, slowest, warnings_of
from hpcfl.watch.sparkline import BLOCKS, sparkline
from hpcfl.watch.status import RunStatus, StatusTracker
from tests.helpers.logs import HEARTBEAT, add, new_log, words


def test_a_series_becomes_blocks_from_its_least_to_its_largest_value():
    """Eighths of the range: 0…7 are the eight blocks; of 0…15 in 8 columns each is the mean of two."""
    assert sparkline(np.arange(8.0), 80) == BLOCKS
    assert sparkline(np.arange(16.0), 8) == BLOCKS
    assert sparkline(np.array([np.nan, 1, np.nan, 0, np.inf, 0.5]), 80) == "█▁▅"
    assert sparkline(np.full(5, 0.25), 3) == "▄▄▄"
    assert (
        sparkline(np.array([]), 10) == sparkline(np.array([np.nan]), 10) == sparkline(np.arange(3.0), 0) == ""
    )


@given(some.lists(some.floats(-1e6, 1e6) | some.just(float("nan")), max_size=200), some.integers(1, 50))
def test_blocks_fit_the_width_and_rise_with_the_series(values, width):
    given_ = np.array(values, dtype=float)
    line = sparkline(given_, width)
    assert len(line) == min(width, int(np.isfinite(given_).sum()))
    rising = sparkline(np.sort(given_[np.isfinite(given_)]), width)
    assert list(rising) == sorted(rising)


def test_the_picture_has_what_the_log_has(tmp_path):
    log = new_log(tmp_path / "run.h5")
    log.attributes["ranks"] = 3
    nan = np.nan
    add(log, 0.25, client__seconds=[1.0, 9.0, 2.0], client__rank=[1, 1, 2])
    add(log, 0.75, client__seconds=[4.0, nan, 3.0], client__rank=[2, -1, 1], round__seconds=2.0)
    add(log, nan, client__seconds=[nan] * 3, client__diverged=[False, True, True], round__loss=0.125)
    run = read_log(tmp_path / "run.h5", WATCHED)
    status = RunStatus(run, HEARTBEAT, heartbeat_age=1.0)
    assert slowest(run) == [(1, 1, 9.0), (0, 2, 4.0), (2, 1, 3.0)]
    shown = words(status)
    for part in (
        "fedproto on spiral, 20 clients (3 net), 20 per round; 3 ranks",
        "running, 6 of 25 rounds, 25 s left",  # the mean of 0, 2 and 2 seconds, for 19 rounds
        " ━━━━━━━───",  # 30 columns · 6 ÷ 25; the sign says that round 7 runs
        "75.00% in round 2, best 75.00% in round 2",
        "▁█",
        "loss 0.125",
        "client 1, net, on rank 1: 9.000 s",
        "2 clients: 1, 2",
        "missing rank 0 waits for ranks 2, 4–6 since",
        "30 s (round 7, train)",
    ):
        assert part in shown
    assert "silent" not in shown


def test_no_number_is_cut_on_a_narrow_terminal(tmp_path):
    add(new_log(tmp_path / "run.h5"))
    status = RunStatus(read_log(tmp_path / "run.h5", WATCHED), HEARTBEAT, heartbeat_age=1.0)
    console = Console(width=40, file=io.StringIO())
    console.print(render(status, Path("run.h5"), 40))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert "…" not in shown
    assert re.search(r"log\s+0\.000", shown)


def test_nothing_is_said_of_a_healthy_run(tmp_path):
    log = new_log(tmp_path / "run.h5")
    add(log)
    run = read_log(tmp_path / "run.h5", WATCHED)
    healthy = RunStatus(
        run, Heartbeat(1e9, 2, "train", (1, 2), 1e9 - 1), heartbeat_age=1.0, seconds_unanswered=0.5
    )
    assert list(warnings_of(healthy, Path("run.h5"))) == []


def test_numbers_and_times_in_words():
    assert format_ranges([5, 1, 2, 3, 9, 8]) == "1–3, 5, 8, 9"
    assert format_ranges(range(0, 60, 2)) == ", ".join(map(str, range(0, 24, 2))) + " and 18 more"
    assert [format_duration(s) for s in (0.4, 59, 60, 3599, 3600, 90061)] == [
        *("0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h"),
    ]


def test_one_plain_line_per_new_round_elsewhere_than_on_a_terminal(tmp_path, capsys):
    path = tmp_path / "run.h5"
    log = new_log(path)
    lines = command.LineDisplay(path)
    look, tracker = LogPoller(path), StatusTracker()

    def said() -> list[str]:
        lines.show(tracker.update(look(), 0.0))
        return capsys.readouterr().out.splitlines()

    assert said() == ["fedproto on spiral, 20 clients (3 net), 20 per round; 1 rank"]
    add(log, 0.5)
    add(log, np.nan)
    assert said() == [
        "round 1/25  accuracy 50.00%  loss 0  0.00 s",
        "round 2/25  accuracy –  loss 1  1.00 s",
    ]
    assert said() == []
    path.unlink()
    assert said() == [f"{path} is not there: this is what it said 0 s ago"]
    assert said() == []
    log.close("diverged")
    assert said() == ["diverged, 2 of 25 rounds; accuracy 50.00% in round 1, best 50.00% in round 1"]


def test_a_wait_is_reported_in_plain_lines_once_and_only_if_it_is_long(tmp_path, capsys):
    new_log(tmp_path / "run.h5")
    run = read_log(tmp_path / "run.h5", WATCHED)
    lines = command.LineDisplay(tmp_path / "run.h5")
    for since in (5, 65, 70):
        lines.show(RunStatus(run, Heartbeat(1e9, 3, "train", (2,), 1e9 - since), 1.0))
    printed = capsys.readouterr().out.splitlines()[1:]
    assert len(printed) == 1
    assert printed[0].startswith("rank 0 waits for rank 2 since ")
    assert printed[0].endswith(", 1 min 5 s (round 3, train)")
