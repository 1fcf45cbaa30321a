"""Two jobs cannot write one log, and a lock is released with its owner."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpcfl.errors import BadInput
from hpcfl.runtime import lock
from hpcfl.runtime.lock import RunLock
from tests.helpers.runs import CHECKPOINTS, options


def test_two_jobs_cannot_write_one_log_and_a_dead_owner_does_not_block(hpcfl):
    train = ("train", "--out", "run.h5", *options(*CHECKPOINTS))
    held = (
        "import sys, time; from pathlib import Path; from hpcfl.runtime.lock import RunLock; "
        "lock = RunLock(Path('run.h5')); lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, cwd=Path.cwd()) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = hpcfl(*train)
        assert done.exit_code == 2
        assert f"run.h5.lock is held by process {other.pid} on " in done.output
        assert not Path("run.h5").exists()
        other.kill()
        other.wait()
    assert hpcfl(*train).exit_code == 0
    assert not Path("run.h5.lock").exists()


def test_a_job_that_was_started_again_waits_for_a_lock(tmp_path, monkeypatch):
    first, second = RunLock(tmp_path / "run.h5"), RunLock(tmp_path / "run.h5")
    first.acquire()
    naps: list[float] = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            first.release()

    monkeypatch.setattr(lock.time, "sleep", nap)
    monkeypatch.setattr(lock, "PROBE_WAIT", 0.0)
    with pytest.raises(BadInput, match="two jobs cannot write one log"):
        second.acquire()
    assert naps == []
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    second.acquire()
    assert len(naps) == 3
    second.release()


def test_a_lock_that_somebody_only_looks_at_is_waited_for(tmp_path):
    """`hpcfl study status` asks whether a lock is held by taking a share of it for an instant."""
    path = tmp_path / "run.h5.lock"
    path.touch()
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    assert not lock.is_locked(tmp_path / "run.h5")
    threading.Timer(0.3, os.close, [handle]).start()
    own = RunLock(tmp_path / "run.h5")
    own.acquire()
    assert lock.is_locked(tmp_path / "run.h5")
    own.release()
    assert not lock.is_locked(tmp_path / "run.h5")


@pytest.mark.parametrize(
    ("target", "kind"), [("mine", "symbolic"), ("nothing", "symbolic"), ("mine", "hard")]
)
def test_a_link_in_the_place_of_a_lock_is_refused(hpcfl, target, kind):
    Path("mine").write_text("my thesis")
    Path("run.h5.lock").symlink_to(target) if kind == "symbolic" else os.link(target, "run.h5.lock")
    done = hpcfl("train", "--out", "run.h5", *options(*CHECKPOINTS))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert f"run.h5.lock: it is a {kind} link" in done.output
    assert Path("mine").read_text() == "my thesis"
    assert sorted(os.listdir()) == ["mine", "run.h5.lock"]


def test_a_pipe_in_the_place_of_a_lock_is_refused(hpcfl):
    os.mkfifo("run.h5.lock")
    done = hpcfl("train", "--out", "run.h5", *options(*CHECKPOINTS))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "run.h5.lock: it is not a regular file" in done.output
    assert not lock.is_locked(Path("run.h5"))


def test_a_full_disk_at_the_start_is_one_sentence(hpcfl, monkeypatch):
    """A file system may have an inode left, but no byte for the owner's name."""
    write = os.write

    def full(handle, data):
        if data.startswith(b"process "):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data)

    monkeypatch.setattr(os, "write", full)
    done = hpcfl("train", "--out", "run.h5", *options(*CHECKPOINTS))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "run.h5.lock: No space left on device" in done.output
    assert os.listdir() == []


def test_a_lock_that_cannot_be_deleted_is_released(tmp_path, monkeypatch):
    """The directory lost its write permission: the failure that was under way is what the user must see."""
    first, second = RunLock(tmp_path / "run.h5"), RunLock(tmp_path / "run.h5")
    first.acquire()

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        first.release()
    assert not lock.is_locked(tmp_path / "run.h5")
    second.acquire()
    second.release()
    assert os.listdir(tmp_path) == []


def test_the_lock_of_another_job_is_not_deleted(tmp_path):
    """Somebody deleted the file of a lock that was held, and another job made a new one."""
    first, second = RunLock(tmp_path / "run.h5"), RunLock(tmp_path / "run.h5")
    first.acquire()
    first.path.unlink()
    second.acquire()
    first.release()
    assert lock.is_locked(tmp_path / "run.h5")
    second.release()
