"""Late uploads, and clients that are still busy, survive a stop."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.log.reader import read_log
from tests.helpers.runs import assert_equal_runs

LATE = ("system.profile=phones", "system.latency={median=1.0, sigma=1.0}", "system.late=keep")
POLICIES = {
    "deadline": ("system.deadline=0.7", "system.failure=0.1", "method.aggregate=ppa"),
    "over-selection": ("system.extra=3", "system.availability=0.7", "method.name=fedgen"),
    "both": ("system.extra=2", "system.deadline=1.5", "method.name=fedkd"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_stopped_after_every_round_and_continued(train, stop_after, policy):
    settings = (*LATE, *POLICIES[policy])
    stop_after[0] = 1000
    assert train("whole.h5", *settings).exit_code == 0
    log = read_log("whole.h5")
    assert log["/virtual/earlier"].any()
    assert np.nanmax(log["/virtual/seconds_wait"]) > 0
    for _ in range(5):
        stop_after[0] = 1
        assert train("parts.h5", *settings).exit_code == 75
    stop_after[0] = 1000
    assert train("parts.h5", *settings).exit_code == 0
    assert_equal_runs("parts.h5", "whole.h5")
