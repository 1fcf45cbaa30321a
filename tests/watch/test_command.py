"""The command: it follows a run, and ends as that did."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import pytest

from hpcfl.log.writer import LogWriter
from hpcfl.watch import command
from hpcfl.watch.command import follow
from hpcfl.watch.status import RunStatus
from tests.helpers.logs import add, new_log
from tests.helpers.terminal import on_a_terminal


class Script:
    """A display that does the next step whenever a status has come that fits the last one."""

    def __init__(self, *steps: tuple):
        self.steps = list(steps)
        self.statuses: list[RunStatus] = []

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def show(self, status: RunStatus) -> None:
        self.statuses.append(status)
        assert len(self.statuses) < 2000, f"still waits for step {len(self.steps)} before the last"
        if self.steps and self.steps[0][0](status):
            self.steps.pop(0)[1]()


def test_a_run_is_followed_through_all_that_can_happen_to_its_file(tmp_path):
    """Not there, there, gone, damaged, back, stopped, continued, another run, finished."""
    path = tmp_path / "run.h5"
    logs: list[LogWriter] = []
    whole = b""

    def damage() -> None:
        nonlocal whole
        whole = (tmp_path / "away.h5").read_bytes()
        path.write_bytes(whole[:3000])

    def other() -> None:
        logs.append(new_log(path, backup=tmp_path / "run~1.h5"))
        add(logs[1], 0.125)

    def resume() -> None:
        logs[0].attributes |= {"status": "running", "restarts": 1, "end": ""}
        add(logs[0])

    script = Script(
        (lambda v: v.absent and v.run is None, lambda: logs.append(new_log(path))),
        (lambda v: v.run and v.run.rounds_done == 0, lambda: add(logs[0])),
        (lambda v: v.run.rounds_done == 1, lambda: path.rename(tmp_path / "away.h5")),
        (lambda v: v.absent and v.run.rounds_done == 1, damage),
        (lambda v: v.problem and v.run.rounds_done == 1, lambda: path.write_bytes(whole)),
        (lambda v: not v.problem and not v.absent, lambda: logs[0].close("stopped")),
        (lambda v: v.ended == "stopped", resume),
        (lambda v: v.run.rounds_done == 2 and not v.ended, other),
        (lambda v: v.run["/round/accuracy"].tolist() == [0.125], lambda: logs[1].close("finished")),
    )
    assert follow(path, 0.01, script) == 0
    assert script.steps == []
    assert script.statuses[-1].ended == "finished"


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
    assert once.exit_code == code
    assert f"{status}, 1 of 25 rounds ━─" in once.output
    assert "50.00% now" in once.output


def test_one_picture_of_a_run_that_goes_on_is_no_failure(hpcfl):
    add(new_log(Path("run.h5")))
    once = hpcfl("watch", "run.h5", "--once")
    assert once.exit_code == 0
    assert "running, 1 of 25 rounds" in once.output


def test_what_is_no_log_ends_with_one_sentence(hpcfl, monkeypatch):
    monkeypatch.setattr(command, "READ_TIMEOUT", 0.2)
    Path("text.h5").write_text("hello")
    Path("dir.h5").mkdir()
    h5py.File("foreign.h5", "w").close()
    for name, reason in (
        ("text.h5", "cannot read text.h5: not an HDF5 file, or a damaged one"),
        ("dir.h5", "dir.h5 is a directory, not the log of a run"),
        ("foreign.h5", "foreign.h5 is an HDF5 file, but not a log of hpcfl"),
    ):
        done = hpcfl("watch", name, "--every", "0.1")
        assert (done.exit_code, done.output.splitlines()[-1]) == (2, f"hpcfl: {reason}")
    missing = hpcfl("watch", "--once", "nothing.h5")
    assert missing.exit_code == 2
    assert missing.output == "hpcfl: cannot read nothing.h5: No such file or directory\n"
    assert hpcfl("watch", "nothing.h5", "--every", "0").exit_code == 2
    assert hpcfl("watch", "nothing.h5", "--every", "nan").exit_code == 2


def test_a_name_that_would_command_the_terminal_is_shown_harmless(hpcfl):
    new_log(Path("a\x1b[31m.h5")).close("finished")
    shown = hpcfl("watch", "--once", "a\x1b[31m.h5")
    assert shown.exit_code == 0
    assert "a?[31m.h5" in shown.output
    assert "\x1b" not in shown.output


def test_a_terminal_gets_the_picture_and_keeps_its_cursor(tmp_path):
    log = new_log(tmp_path / "run.h5")
    add(log)
    program = [sys.executable, "-m", "hpcfl", "watch", "--every", "0.1", str(tmp_path / "run.h5")]
    theirs, ours = pty.openpty()[::-1]
    with subprocess.Popen(
        program, stdout=theirs, stderr=theirs, stdin=theirs, env=os.environ | {"TERM": "xterm"}
    ) as watching:
        os.close(theirs)
        limit = threading.Timer(60, watching.kill)
        limit.start()
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
        limit.cancel()
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
        "command.READ_TIMEOUT = 0; main(['watch', 'no.h5', '--every', '0.1'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("hpcfl: cannot read no.h5")) == (2, 1)
