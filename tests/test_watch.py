"""The live view: what it shows, and that no answer of a file system ends it."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from hpcfl.comm.solo import Solo
from hpcfl.errors import BadInput
from hpcfl.log import sign as signs
from hpcfl.log.reader import read
from hpcfl.log.sign import Sign, Signer, read_sign, sign_path, understand
from hpcfl.log.writer import Log
from hpcfl.screen import Screen, duration
from hpcfl.watch import command, sight
from hpcfl.watch.command import follow
from hpcfl.watch.picture import listed, remarks, rows, slowest
from hpcfl.watch.sight import WATCHED, Eye, Seen, Sight
from hpcfl.watch.spark import BLOCKS, spark
from hpcfl.watch.view import SILENCE, Memory, View
from tests.log.test_log import new_log, row
from tests.test_cli import SMALL, on_a_terminal

SIGN = Sign(time=1e9, round=7, part="train", missing=(2, 4, 5, 6), since=1e9 - 30)


def add(log: Log, accuracy: float = 0.5, **more: object) -> None:
    """Adds a row and writes it."""
    given = {f"/{name.replace('__', '/')}": value for name, value in more.items()}
    log.append(row(log.rounds_done) | {"/round/accuracy": accuracy} | given, {})
    log.write()


def words(view: View) -> str:
    return "\n".join(f"{label} {text}" for label, text, _ in rows(view, Path("run.h5"), 60))


def test_a_series_becomes_blocks_from_its_least_to_its_largest_value():
    """Eighths of the range: 0…7 are the eight blocks; of 0…15 in 8 columns each is the mean of two."""
    assert spark(np.arange(8.0), 80) == BLOCKS
    assert spark(np.arange(16.0), 8) == BLOCKS
    assert spark(np.array([np.nan, 1, np.nan, 0, np.inf, 0.5]), 80) == "█▁▅"
    assert spark(np.full(5, 0.25), 3) == "▄▄▄"
    assert spark(np.array([]), 10) == spark(np.array([np.nan]), 10) == spark(np.arange(3.0), 0) == ""


@given(some.lists(some.floats(-1e6, 1e6) | some.just(float("nan")), max_size=200), some.integers(1, 50))
def test_blocks_fit_the_width_and_rise_with_the_series(values, width):
    given_ = np.array(values, dtype=float)
    line = spark(given_, width)
    assert len(line) == min(width, int(np.isfinite(given_).sum()))
    rising = spark(np.sort(given_[np.isfinite(given_)]), width)
    assert list(rising) == sorted(rising)


def test_the_picture_has_what_the_log_has(tmp_path):
    log = new_log(tmp_path / "run.h5")
    log.attributes["ranks"] = 3
    nan = np.nan
    add(log, 0.25, client__seconds=[1.0, 9.0, 2.0], client__rank=[1, 1, 2])
    add(log, 0.75, client__seconds=[4.0, nan, 3.0], client__rank=[2, -1, 1], round__seconds=2.0)
    add(log, nan, client__seconds=[nan] * 3, client__diverged=[False, True, True], round__loss=0.125)
    run = read(tmp_path / "run.h5", WATCHED)
    view = View(run, SIGN, sign_age=1.0)
    assert slowest(run) == [(1, 1, 9.0), (0, 2, 4.0), (2, 1, 3.0)]
    shown = words(view)
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


def test_numbers_and_times_in_words():
    assert listed([5, 1, 2, 3, 9, 8]) == "1–3, 5, 8, 9"
    assert listed(range(0, 60, 2)) == ", ".join(map(str, range(0, 24, 2))) + " and 18 more"
    assert [duration(s) for s in (0.4, 59, 60, 3599, 3600, 90061)] == [
        *("0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 1 h"),
    ]


def test_a_name_that_would_command_the_terminal_is_shown_harmless(hpcfl):
    new_log(Path("a\x1b[31m.h5")).close("finished")
    shown = hpcfl("watch", "--once", "a\x1b[31m.h5")
    assert shown.exit_code == 0
    assert "a?[31m.h5" in shown.output
    assert "\x1b" not in shown.output


def test_the_log_is_read_again_only_when_its_name_leads_to_another_file(tmp_path, monkeypatch):
    log = new_log(tmp_path / "run.h5")
    add(log)
    counted = Mock(side_effect=read)
    monkeypatch.setattr(sight, "read", counted)
    look = Sight(tmp_path / "run.h5")
    first = look().run
    assert look().run is first
    assert counted.call_count == 1
    add(log)
    assert len(look().run["/round/loss"]) == 2  # type: ignore[index]
    assert counted.call_count == 2
    handles = [path for path in Path("/proc/self/fd").iterdir() if path.is_file()]
    assert not [path for path in handles if "run.h5" in os.readlink(path)]


def test_what_a_late_file_system_answers_leaves_the_last_whole_log(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    log = new_log(path)
    add(log)
    look = Sight(path)
    good, whole = look(), path.read_bytes()
    for content in (b"", b"\0" * 5000, whole[:5000], whole[:-100], whole[:2000] + bytes(len(whole) - 2000)):
        path.write_bytes(content)
        seen = look()
        assert seen.problem is not None, len(content)
        assert seen.run is good.run
    path.unlink()
    assert look().absent
    path.mkdir()
    assert "Is a directory" in str(look().problem)
    path.rmdir()
    path.write_bytes(whole)
    for number in (errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EACCES):

        def refuse(name: str, flags: int, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(sight, "_at_once", refuse)
            assert os.strerror(number) in str(look().problem)
    again = look()
    assert again.problem is None
    assert again.run is not None
    assert again.run.rounds_done == 1


def test_a_file_system_that_fails_in_the_middle_of_a_log_is_bad_input(tmp_path, monkeypatch):
    add(new_log(tmp_path / "run.h5"))
    original = h5py.Dataset.__getitem__
    for reads in range(0, len(WATCHED), 3):
        left = iter(range(reads))

        def failing(self, part, left=left):
            if next(left, None) is None:
                raise OSError(errno.EIO, "Input/output error")
            return original(self, part)

        monkeypatch.setattr(h5py.Dataset, "__getitem__", failing)
        with pytest.raises(BadInput, match="Input/output error"):
            read(tmp_path / "run.h5", WATCHED)


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
    sign_path(tmp_path / "run.h5").write_bytes(content)
    seen = Sight(tmp_path / "run.h5")()
    assert seen.sign is None
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
    found = understand(json.dumps(value).encode())
    if found is not None:
        assert (found.time, found.part, list(found.missing)) == (
            value["time"],
            value["part"],
            value["missing"],
        )
        shown = words(View(None, found, sign_age=1.0))
        assert ("missing" in shown) == (bool(found.missing) and found.time - found.since >= 3)
        assert shown.replace("\n", "").isprintable()


def test_what_has_a_signs_name_but_is_no_file_is_none(tmp_path):
    os.mkfifo(sign_path(tmp_path / "run.h5"))
    assert read_sign(tmp_path / "run.h5") is None
    os.mkfifo(tmp_path / "pipe.h5")
    assert "not a file" in str(Sight(tmp_path / "pipe.h5")().problem)


class Waiting(Solo):
    def missing(self) -> tuple[list[int], float]:
        return [3, 5], 12.5


def test_rank_0_leaves_signs_and_takes_them_away(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "EVERY", 0.02)
    log = tmp_path / "run.h5"
    sign_path(log).write_text("left by a run that was killed")
    link = Waiting()
    link.round, link.part = 9, "log"  # of the run before
    with Signer(log, link):
        while (first := read_sign(log)) is None:
            time.sleep(0.005)
        link.part, link.round = "refine", 5
        while (second := read_sign(log)) is None or second.round == 0:
            time.sleep(0.005)
    assert (first.round, first.part) == (0, "start")
    assert (second.round, second.part, second.missing, second.since) == (5, "refine", (3, 5), 12.5)
    assert 0 <= second.time - first.time < 10
    assert list(tmp_path.iterdir()) == []


def test_signs_that_cannot_be_written_harm_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "EVERY", 0.02)
    with Signer(tmp_path / "nowhere" / "run.h5", Solo()) as signer:
        time.sleep(0.05)
        assert signer.is_alive()
    (tmp_path / "run.h5.live").mkdir()
    with Signer(tmp_path / "run.h5", Solo()):
        time.sleep(0.05)
    assert [path.name for path in tmp_path.iterdir()] == ["run.h5.live"]


def test_a_run_gives_signs_from_start_to_end(hpcfl, monkeypatch):
    monkeypatch.setattr(signs, "EVERY", 0.01)
    seen: list[Sign | None] = []
    original = Screen.row

    def look(self: Screen, t: int, row: dict) -> None:
        time.sleep(0.1)
        seen.append(read_sign(Path("run.h5")))
        original(self, t, row)

    monkeypatch.setattr(Screen, "row", look)
    assert hpcfl("train", *SMALL, "--out", "run.h5").exit_code == 0
    assert [found and (found.round, found.part, found.missing) for found in seen] == [
        (2, "log", ()),  # row 1 is complete after the broadcast that opens round 2
        (2, "log", ()),
    ]
    assert sorted(path.name for path in Path().iterdir()) == ["run.h5", "run.h5.ckpt"]


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
    monkeypatch.setattr("hpcfl.watch.view.time", clock := Clock())
    log = new_log(tmp_path / "run.h5")
    add(log)
    run = read(tmp_path / "run.h5", WATCHED)
    memory = Memory()
    sign = Sign(clock.time() - 100, 2, "train", (1,), clock.time() - 110)
    view = memory.view(Seen(run, clock.time() - 50, sign), 0.0)
    assert (view.sign_age, view.quiet, view.alive, view.silent) == (100, 50, False, True)
    assert view.waited == 10
    clock.now += 2
    sign = Sign(clock.time() - 100, 2, "train", (1,), clock.time() - 112)
    view = memory.view(Seen(run, clock.time() - 50, sign), 0.0)
    assert (view.sign_age, view.quiet, view.alive, view.silent) == (0, 0, True, False)
    clock.now += SILENCE
    view = memory.view(None, clock.now - 5)
    assert (view.late, view.age, view.silent) == (5, SILENCE, True)
    assert f"no sign of life for {SILENCE:.0f} s" in words(view)
    assert "the file system has not answered for 5 s" in words(view)
    assert "rank 0 waited last for rank 1 since" in words(view)


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
    run = read(tmp_path / "run.h5", WATCHED)
    assert View(run, SIGN, sign_age=1.0 if alive else 60.0).ended == ended


class Script:
    """A display that does the next step whenever a view has come that fits the last one."""

    def __init__(self, *steps: tuple):
        self.steps = list(steps)
        self.views: list[View] = []

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, view: View) -> None:
        self.views.append(view)
        assert len(self.views) < 2000, f"still waits for step {len(self.steps)} before the last"
        if self.steps and self.steps[0][0](view):
            self.steps.pop(0)[1]()


def test_a_run_is_followed_through_all_that_can_happen_to_its_file(tmp_path):
    """Not there, there, gone, damaged, back, stopped, continued, another run, finished."""
    path = tmp_path / "run.h5"
    logs: list[Log] = []
    whole = b""

    def damage() -> None:
        nonlocal whole
        whole = (tmp_path / "away.h5").read_bytes()
        path.write_bytes(whole[:3000])

    def other() -> None:
        logs.append(new_log(path, fresh=True))
        add(logs[1], 0.125)

    def stop() -> None:
        logs[0].placed = (os.stat(path).st_dev, os.stat(path).st_ino)
        logs[0].close("stopped")

    def resume() -> None:
        logs[0].attributes |= {"status": "running", "restarts": 1, "end": ""}
        add(logs[0])

    script = Script(
        (lambda v: v.absent and v.run is None, lambda: logs.append(new_log(path))),
        (lambda v: v.run and v.run.rounds_done == 0, lambda: add(logs[0])),
        (lambda v: v.run.rounds_done == 1, lambda: path.rename(tmp_path / "away.h5")),
        (lambda v: v.absent and v.run.rounds_done == 1, damage),
        (lambda v: v.problem and v.run.rounds_done == 1, lambda: path.write_bytes(whole)),
        (lambda v: not v.problem and not v.absent, stop),
        (lambda v: v.ended == "stopped", resume),
        (lambda v: v.run.rounds_done == 2 and not v.ended, other),
        (lambda v: v.run["/round/accuracy"].tolist() == [0.125], lambda: logs[1].close("finished")),
    )
    assert follow(path, 0.01, script) == 0
    assert script.steps == []
    assert script.views[-1].ended == "finished"


def test_one_plain_line_per_new_round_elsewhere_than_on_a_terminal(tmp_path, capsys):
    path = tmp_path / "run.h5"
    log = new_log(path)
    lines = command.Lines(path)
    look, memory = Sight(path), Memory()

    def said() -> list[str]:
        lines.show(memory.view(look(), 0.0))
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
    run = read(tmp_path / "run.h5", WATCHED)
    lines = command.Lines(tmp_path / "run.h5")
    for since in (5, 15, 20):
        lines.show(View(run, Sign(1e9, 3, "train", (2,), 1e9 - since), 1.0))
    told = capsys.readouterr().out.splitlines()[1:]
    assert len(told) == 1
    assert told[0].startswith("rank 0 waits for rank 2 since ")
    assert told[0].endswith(", 15 s (round 3, train)")


@pytest.mark.parametrize(
    ("status", "code", "last"),
    [
        ("finished", 0, "finished, 1 of 25 rounds; accuracy 50.00% now, best 50.00% in round 1"),
        ("diverged", 1, "diverged, 1 of 25 rounds; accuracy 50.00% now, best 50.00% in round 1"),
        ("stopped", 0, "early: the same command continues the run"),
    ],
)
def test_the_command_ends_as_the_run_did(hpcfl, status, code, last):
    log = new_log(Path("run.h5"))
    add(log)
    log.close(status)
    Path("run.h5.live").write_bytes(b"anything \xff")
    done = hpcfl("watch", "run.h5", "--every", "0.1")
    assert done.exit_code == code
    assert done.output.splitlines()[-1] == last
    once = hpcfl("watch", "run.h5", "--once")
    assert once.exit_code == 0
    assert f"{status}, 1 of 25 rounds ━─" in once.output
    assert "50.00% now" in once.output


def test_what_is_no_log_ends_with_one_sentence(hpcfl, monkeypatch):
    monkeypatch.setattr(command, "PATIENCE", 0.2)
    Path("text.h5").write_text("hello")
    Path("dir.h5").mkdir()
    h5py.File("foreign.h5", "w").close()
    for name, reason in (
        ("text.h5", "cannot read text.h5: not an HDF5 file, or a damaged one"),
        ("dir.h5", "cannot read dir.h5: Is a directory"),
        ("foreign.h5", "foreign.h5 is an HDF5 file, but not a log of hpcfl"),
    ):
        done = hpcfl("watch", name, "--every", "0.1")
        assert (done.exit_code, done.output.splitlines()[-1]) == (2, f"hpcfl: {reason}")
    missing = hpcfl("watch", "--once", "nothing.h5")
    assert missing.exit_code == 2
    assert missing.output == "hpcfl: cannot read nothing.h5: No such file or directory\n"
    assert hpcfl("watch", "nothing.h5", "--every", "0").exit_code == 2
    assert hpcfl("watch", "nothing.h5", "--every", "nan").exit_code == 2


def test_a_file_system_that_does_not_answer_holds_up_nobody():
    answer = threading.Event()
    eye = Eye(lambda: answer.wait() and Seen(absent=True))  # type: ignore[arg-type, return-value]
    eye.start()
    for _ in range(2):
        assert eye.ask(0.01) is None
    assert 0.02 <= time.monotonic() - eye.asked < 5
    answer.set()
    seen = eye.ask(5)
    assert seen is not None
    assert seen.absent
    assert eye.asked == 0


def test_nothing_is_said_of_a_healthy_run(tmp_path):
    log = new_log(tmp_path / "run.h5")
    add(log)
    run = read(tmp_path / "run.h5", WATCHED)
    healthy = View(run, Sign(1e9, 2, "train", (1, 2), 1e9 - 1), sign_age=1.0, late=0.5)
    assert list(remarks(healthy, Path("run.h5"))) == []


def test_a_terminal_gets_the_picture_and_keeps_its_cursor(tmp_path):
    log = new_log(tmp_path / "run.h5")
    add(log)
    program = [sys.executable, "-m", "hpcfl", "watch", "--every", "0.1", str(tmp_path / "run.h5")]
    theirs, ours = pty.openpty()[::-1]
    with subprocess.Popen(
        program, stdout=theirs, stderr=theirs, stdin=theirs, env=os.environ | {"TERM": "xterm"}
    ) as watching:
        os.close(theirs)
        seen = b""
        while seen.count(b"running") < 2:
            seen += os.read(ours, 65536)
        watching.send_signal(signal.SIGINT)
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:  # the other side is closed
            pass
        assert watching.wait(20) == 130
    os.close(ours)
    text = seen.decode()
    assert "\x1b[" in text
    assert "\x1b[?25l" not in text
    assert "Abort" not in text
    assert "Traceback" not in text
    log.close("finished")
    final = on_a_terminal(program, tmp_path, 40)
    assert "status    " in final, "labels are not squeezed"
    assert "finished, 1 of 25" in final


def test_watching_loads_neither_torch_nor_mpi(tmp_path):
    new_log(tmp_path / "run.h5").close("finished")
    program = (
        "import sys; from click.testing import CliRunner; from hpcfl.cli import main; "
        f"done = CliRunner().invoke(main, ['watch', {str(tmp_path / 'run.h5')!r}]); "
        "print(done.exit_code, sorted({'torch', 'mpi4py', 'tensorboard'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_the_process_ends_well_where_there_is_no_log(tmp_path):
    """HDF5 cleans up after Python has ended, and must not call it then."""
    (tmp_path / "no.h5").write_text("no log")
    program = (
        "import sys; from hpcfl.watch import command; from hpcfl.cli import main; "
        "command.PATIENCE = 0; main(['watch', 'no.h5', '--every', '0.1'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("hpcfl: cannot read no.h5")) == (2, 1)
