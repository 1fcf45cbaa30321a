"""The end of the batch job, and whether another round fits before it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping

SAVE_MARGIN = 20.0
"""Seconds reserved after the last round for saving and exiting."""
ABORT_MARGIN = 5.0
"""Seconds before the end of the job at which an unfinished round is abandoned."""


def end_time(setting: float | str, started: float, environ: Mapping[str, str] = os.environ) -> float | None:
    """Returns when a job that started at `started` ends (Unix time); None if unknown or switched off.

    `setting` is runtime.walltime_minutes: minutes, "auto" (as Slurm says) or "off".
    """
    if setting == "off":
        return None
    if isinstance(setting, str):
        slurm_end = environ.get("SLURM_JOB_END_TIME", "")
        return float(slurm_end) if slurm_end.isdecimal() else None
    return started + 60 * setting


class Deadline:
    """The time until the end of the job; the system clock, which may jump, is read only once."""

    def __init__(self, end: float | None):
        self.end = None if end is None else time.monotonic() + end - time.time()
        self.longest_round = 0.0
        self.timer: threading.Timer | None = None

    def start(self, abandon: Callable[[], None]) -> None:
        """Calls `abandon` in a thread ABORT_MARGIN seconds before the end, unless cancelled."""
        if self.end is not None:
            wait = max(0.0, self.end - ABORT_MARGIN - time.monotonic())
            self.timer = threading.Timer(min(wait, threading.TIMEOUT_MAX), abandon)
            self.timer.daemon = True
            self.timer.start()

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def too_late_for_next(self, seconds: float) -> bool:
        """Returns, after a round of so many seconds, whether another may not end in time.

        The next round may take 1.5 times as long as the longest so far.
        """
        self.longest_round = max(self.longest_round, seconds)
        return self.end is not None and time.monotonic() + 1.5 * self.longest_round + SAVE_MARGIN > self.end
