"""When the batch system will end this job, and whether another round still fits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping

MARGIN = 20.0
"""Seconds that are left for saving and for leaving, whatever rounds take."""
LATEST = 5.0
"""Seconds before the end at which a round that cannot end is given up."""


def end_time(setting: float | str, began: float, environ: Mapping[str, str] = os.environ) -> float | None:
    """Returns when a job that began then ends, on the system's clock; None: nobody says so."""
    if setting == "off":
        return None
    if isinstance(setting, str):
        told = environ.get("SLURM_JOB_END_TIME", "")
        return float(told) if told.isdecimal() else None
    return began + 60 * setting


class Deadline:
    """The time left, by a clock that does not jump: the system's is asked once."""

    def __init__(self, end: float | None):
        self.end = None if end is None else time.monotonic() + end - time.time()
        self.longest = 0.0
        self.timer: threading.Timer | None = None

    def start(self, give_up: Callable[[], None]) -> None:
        """Calls `give_up` if a round is still under way shortly before the end."""
        if self.end is not None:
            wait = max(0.0, self.end - LATEST - time.monotonic())
            self.timer = threading.Timer(min(wait, threading.TIMEOUT_MAX), give_up)
            self.timer.daemon = True
            self.timer.start()

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def passed(self, seconds: float) -> bool:
        """Says, after a round of so many seconds, that the next, half as long again, would end too late."""
        self.longest = max(self.longest, seconds)
        return self.end is not None and time.monotonic() + 1.5 * self.longest + MARGIN > self.end
