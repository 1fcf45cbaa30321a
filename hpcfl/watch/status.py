"""What is known of a run at an instant: how far it is, whether it lives, and how old the news are."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from hpcfl.errors import BadInput
from hpcfl.log.heartbeat import INTERVAL, Heartbeat
from hpcfl.log.reader import Run
from hpcfl.watch.poller import RECENT, Snapshot

SILENCE = 4 * INTERVAL
"""Seconds without a sign after which a run may be gone."""
NOTICE = 3.0
"""Seconds of waiting, for ranks or for the file system, that are worth a word."""


@dataclass(frozen=True)
class RunStatus:
    """A run and its signs, with ages in seconds by this machine's clock."""

    run: Run | None = None
    heartbeat: Heartbeat | None = None
    sign_age: float = 0.0
    quiet: float = 0.0
    """Since log or signs last changed."""
    age: float = 0.0
    """Since the log was last found whole."""
    late: float = 0.0
    """Since the file system was asked and has not answered."""
    absent: bool = False
    problem: BadInput | None = None

    @property
    def alive(self) -> bool:
        """Whether rank 0 has given a sign of late."""
        return self.heartbeat is not None and self.sign_age < SILENCE

    @property
    def ended(self) -> str:
        """How the run ended; empty: it has not, or goes on again."""
        over = self.run is not None and self.run.status != "running" and not self.alive
        return self.run.status if over and self.run else ""

    @property
    def silent(self) -> bool:
        """Whether the run should give signs, and has not for long."""
        return self.run is not None and not self.ended and not self.alive and self.quiet >= SILENCE

    @property
    def rounds(self) -> int:
        return self.run.config.federation.rounds if self.run else 0

    @property
    def done(self) -> int:
        """Rounds that are done, by log or sign: rows are written to disk a little later."""
        if self.run is None:
            return 0
        told = self.heartbeat.round - 1 if self.heartbeat and self.alive else 0
        return max(self.run.rounds_done, min(told, self.rounds))

    @property
    def pace(self) -> float:
        """Mean seconds of the recent rounds; NaN: there is none yet."""
        if self.run is None or not self.run.rounds_done:
            return math.nan
        return float(self.run["/round/seconds"][-RECENT:].mean())

    @property
    def waited(self) -> float:
        """Seconds that rank 0 had waited for the missing ranks at its last sign; 0: not worth a word."""
        if self.heartbeat is None or not self.heartbeat.missing or self.ended:
            return 0.0
        waited = self.heartbeat.time - self.heartbeat.since
        return waited if waited >= NOTICE else 0.0


class StatusTracker:
    """Turns looks into views: remembers when things changed, by a clock that does not jump."""

    def __init__(self) -> None:
        self.seen: Snapshot | None = None
        self.changed = self.signed = -math.inf
        self.found = time.monotonic()

    def view(self, seen: Snapshot | None, asked: float) -> RunStatus:
        """Returns what is known after a look; None: a look that began at `asked` has not ended."""
        now = time.monotonic()
        if seen is not None:
            self._note(seen, now)
        known = self.seen or Snapshot()
        return RunStatus(
            run=known.run,
            heartbeat=known.heartbeat,
            sign_age=now - self.signed,
            quiet=now - max(self.changed, self.signed),
            age=now - self.found,
            late=now - asked if seen is None else 0.0,
            absent=known.absent,
            problem=known.problem,
        )

    def _note(self, seen: Snapshot, now: float) -> None:
        """Remembers a look; what the first one finds is as old as it says itself."""
        before, self.seen = self.seen, seen
        if not seen.absent and seen.problem is None:
            self.found = now
        if seen.run is not None and (before is None or before.run is not seen.run):
            self.changed = now if before else now - max(0.0, time.time() - seen.written)
        if seen.heartbeat is not None and (before is None or before.heartbeat != seen.heartbeat):
            self.signed = now if before else now - max(0.0, time.time() - seen.heartbeat.time)
