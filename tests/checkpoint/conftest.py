"""Runs that stop when they are told to."""

from __future__ import annotations

import pytest

from hpcfl.runtime.deadline import Deadline
from tests.helpers.runs import CHECKPOINTS, options


@pytest.fixture
def train(hpcfl):
    """Returns `train(out, *settings)`: the result of the command."""
    return lambda out, *settings: hpcfl("train", "--out", out, *options(*CHECKPOINTS, *settings))


@pytest.fixture
def stop_after(monkeypatch):
    """Lets a run end after `stop_after[0]` rounds, as a walltime does."""
    left = [1]
    monkeypatch.setattr(Deadline, "start", lambda self, abandon: None)

    def passed(self, seconds):
        left[0] -= 1
        return left[0] <= 0

    monkeypatch.setattr(Deadline, "too_late_for_next", passed)
    return left
