"""The walltime: no round begins that could not end in time, also where clocks jump."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from hpcfl.runtime import deadline
from hpcfl.runtime.deadline import Deadline, end_time


def test_when_a_job_ends():
    assert end_time("auto", 0.0, {}) is None
    assert end_time("auto", 0.0, {"SLURM_JOB_END_TIME": "1700000000"}) == 1_700_000_000
    assert end_time("auto", 0.0, {"SLURM_JOB_END_TIME": "soon"}) is None
    assert end_time("off", 0.0, {"SLURM_JOB_END_TIME": "1700000000"}) is None
    assert end_time(2.0, 1000.0) == 1120


def test_a_round_that_would_not_end_in_time_is_not_begun():
    """With 100 s left rounds of 60 s do not fit (half as long again, and 20 s to save), of 40 s they do."""
    left = Deadline(time.time() + 100)
    assert not left.too_late_for_next(40)
    assert left.too_late_for_next(60)
    assert left.too_late_for_next(1), "the longest round so far counts"
    assert not Deadline(None).too_late_for_next(1e9)


def test_the_clock_may_jump(monkeypatch):
    left = Deadline(time.time() + 100)
    monkeypatch.setattr(deadline.time, "time", lambda: 4e9)
    assert not left.too_late_for_next(1)


@pytest.mark.slow
def test_a_round_that_cannot_end_is_given_up(tmp_path):
    """Five seconds before the end: code 75 at once; at most the rounds since the last checkpoint are lost."""
    command = [sys.executable, "-m", "hpcfl", "train", "--out", str(tmp_path / "run.h5")]
    settings = ("federation.rounds=1", "train.epochs=1000000", "runtime.walltime_minutes=0.15")
    done = subprocess.run(
        [*command, *(f"--set={s}" for s in settings)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 75, done.stderr
    assert "no time left to end round 1 of 1; the same command continues" in done.stderr
