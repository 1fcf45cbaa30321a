"""Two jobs cannot write one log, and a lock is released with its owner."""

from __future__ import annotations

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
