"""Polling a log: no answer of a file system ends it."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import h5py
import pytest

from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.watch import poller
from hpcfl.watch.poller import WATCHED, LogPoller, PollThread, Snapshot
from tests.helpers.logs import add, new_log


def test_the_log_is_read_again_only_when_its_name_leads_to_another_file(tmp_path, monkeypatch):
    log = new_log(tmp_path / "run.h5")
    add(log)
    counted = Mock(side_effect=read_log)
    monkeypatch.setattr(poller, "read_log", counted)
    look = LogPoller(tmp_path / "run.h5")
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
    look = LogPoller(path)
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

        def refuse(path: Path, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(poller, "open_regular", refuse)
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
            read_log(tmp_path / "run.h5", WATCHED)


def test_a_file_system_that_does_not_answer_holds_up_nobody():
    answer = threading.Event()
    thread = PollThread(lambda: answer.wait() and Snapshot(absent=True))  # type: ignore[arg-type, return-value]
    thread.start()
    for _ in range(2):
        assert thread.request(0.01) is None
    assert 0.02 <= time.monotonic() - thread.pending_since < 5
    answer.set()
    seen = thread.request(5)
    assert seen is not None
    assert seen.absent
    assert thread.pending_since == 0
