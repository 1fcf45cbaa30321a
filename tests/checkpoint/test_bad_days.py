"""Full disks, two jobs, clocks that jump, walltimes: the last good state is kept."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from hpcfl.checkpoint import store
from hpcfl.checkpoint import writer as checkpoint_writer
from hpcfl.checkpoint.store import CheckpointStore, read_manifest
from hpcfl.errors import BadInput
from hpcfl.log import writer as log_writer
from hpcfl.log.reader import read_log
from hpcfl.runtime import deadline, exit_handling, lock
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.lock import RunLock
from tests.mpi.cases import results


def test_a_full_disk_stops_the_run_and_keeps_the_last_good_state(train, in_haste):
    """While saving: files of later rounds cannot be written; one sentence, and the run goes on later."""
    in_haste[0] = 1000
    train("whole.h5")
    original = store.CheckpointStore.write_arrays

    def full(self, name, values):
        if int(name.split("-")[0]) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(self, name, values)

    with pytest.MonkeyPatch.context() as patch, _ended() as ended:
        patch.setattr(store.CheckpointStore, "write_arrays", full)
        train("run.h5")
    assert ended == [1]
    kept = read_manifest(CheckpointStore(Path("run.h5.ckpt")).manifests()[0]).round
    assert kept < 3
    done = train("run.h5")
    assert f"continues after round {kept + 1} of 6" in done.output
    assert results(Path("run.h5")) == results(Path("whole.h5"))


class _ended(list):
    """Catches the end of all ranks: a process that runs alone ends itself."""

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(exit_handling.os, "_exit", self.leave)
        self.patch.setattr("hpcfl.comm.serial.SerialCommunicator.abort", lambda link, code: None)
        return self

    def leave(self, code):
        self.append(code)
        raise KeyboardInterrupt

    def __exit__(self, kind, value, trace):
        self.patch.undo()
        return kind is KeyboardInterrupt


def test_a_full_disk_while_logging(train, in_haste):
    in_haste[0] = 1000
    writes = [0]
    original = log_writer.LogWriter._write

    def full(self):
        writes[0] += 1
        if writes[0] == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self)

    with pytest.MonkeyPatch.context() as patch, _ended() as ended:
        patch.setattr(log_writer.LogWriter, "_write", full)
        train("run.h5")
    assert ended == [1]
    assert read_log("run.h5").rounds_done >= 1, "what was written before is whole"
    assert train("run.h5").exit_code == 0


def test_vectors_that_do_not_reach_the_disk_end_the_run(tmp_path, monkeypatch):
    kept = checkpoint_writer.CheckpointWriter(
        tmp_path, 1, "ab", lambda i: torch.full((4,), i, dtype=torch.uint8)
    )
    kept.mark_changed([3])
    kept.begin(0)

    def broken(handle):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_writer.os, "fsync", broken)
    kept.save_rest([3], [])
    with pytest.raises(checkpoint_writer.Fatal, match="Input/output error; what was saved before is kept"):
        kept.take_saved(wait=True)


def test_a_vector_is_saved_as_it_was_before_the_client_changed(tmp_path):
    vectors = {i: torch.full((4,), i, dtype=torch.uint8) for i in range(4)}
    kept = checkpoint_writer.CheckpointWriter(tmp_path, 1, "ab", vectors.__getitem__)
    kept.mark_changed([1, 2, 3])
    kept.begin(7)
    kept.mark_changed([1])
    kept.save_before_change(1)
    vectors[1].fill_(99)
    kept.save_before_change(1)  # only once
    kept.save_rest([0, 1, 2], chosen=[1])  # client 3 is another rank's share
    saved = {entry.client: entry for entry in kept.take_saved(wait=True)}
    assert saved.keys() == {1, 2}
    raw = (tmp_path / "7-1-ab.bin").read_bytes()
    assert raw[saved[1].at :][:4] == bytes([1] * 4)
    assert raw[saved[2].at :][:4] == bytes([2] * 4)
    kept.begin(8)
    assert kept.pending == {1}


def test_two_jobs_cannot_write_one_log_and_a_dead_owner_does_not_block(train, tmp_path, monkeypatch):
    held = (
        "import sys, time; from pathlib import Path; from hpcfl.runtime.lock import RunLock; "
        "lock = RunLock(Path('run.h5')); lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, cwd=Path.cwd()) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = train("run.h5")
        assert done.exit_code == 2
        assert f"run.h5.lock is held by process {other.pid} on " in done.output
        assert not Path("run.h5").exists()
        other.kill()
        other.wait()
    assert train("run.h5").exit_code == 0
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
    monkeypatch.setattr(lock, "MOMENT", 0.0)
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


# --- walltime


def test_when_a_job_ends():
    assert end_time("auto", 0.0, {}) is None
    assert end_time("auto", 0.0, {"SLURM_JOB_END_TIME": "1700000000"}) == 1_700_000_000
    assert end_time("auto", 0.0, {"SLURM_JOB_END_TIME": "soon"}) is None
    assert end_time("off", 0.0, {"SLURM_JOB_END_TIME": "1700000000"}) is None
    assert end_time(2.0, 1000.0) == 1120


def test_a_round_that_would_not_end_in_time_is_not_begun():
    """With 100 s left rounds of 60 s do not fit (half as long again, and 20 s to save), of 40 s they do."""
    left = Deadline(time.time() + 100)
    assert not left.passed(40)
    assert left.passed(60)
    assert left.passed(1), "the longest round so far counts"
    assert not Deadline(None).passed(1e9)


def test_the_clock_may_jump(monkeypatch):
    left = Deadline(time.time() + 100)
    monkeypatch.setattr(deadline.time, "time", lambda: 4e9)
    assert not left.passed(1)


def test_a_round_that_cannot_end_is_given_up(tmp_path):
    """Five seconds before the end: code 75 at once; at most the rounds since the last checkpoint are lost."""
    command = [sys.executable, "-m", "hpcfl", "train", "--out", str(tmp_path / "run.h5")]
    settings = ("federation.rounds=1", "train.epochs=1000000", "runtime.walltime_minutes=0.15")
    done = subprocess.run(
        [*command, *(f"--set={s}" for s in settings)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 75, done.stderr
    assert "no time left to end round 1 of 1; the same command continues" in done.stderr


# --- whatever is in the files, nothing crashes and nothing in them is run
