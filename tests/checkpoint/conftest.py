"""Runs that stop when they are told to."""

from __future__ import annotations

import pytest

from hpcfl.runtime.deadline import Deadline
from tests.checkpoint.runs import SMALL


@pytest.fixture
def train(hpcfl):
    """Returns `train(out, *settings)`: the result of the command."""
    return lambda out, *settings: hpcfl("train", "--out", out, *(f"--set={s}" for s in (*SMALL, *settings)))


@pytest.fixture
def in_haste(monkeypatch):
    """Lets a run end after `in_haste[0]` rounds, as a walltime does."""
    left = [1]
    monkeypatch.setattr(Deadline, "start", lambda self, give_up: None)

    def passed(self, seconds):
        left[0] -= 1
        return left[0] <= 0

    monkeypatch.setattr(Deadline, "passed", passed)
    return left
