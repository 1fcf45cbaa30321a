"""The status of a run now: its progress, whether it is alive, and how old this information is."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from hpcfl.errors import BadInput
from hpcfl.log.heartbeat import INTERVAL, Heartbeat
from hpcfl.log.reader import Run
from hpcfl.watch.poller import RECENT, Snapshot

SILENCE = 4 * INTERVAL
"""Seconds without a heartbeat after which a run may have been killed."""
MIN_REPORTED_WAIT = 3.0
"""Shorter waits for ranks or for the file system are not reported, in seconds."""
FIRST_ROUND = 60.0
"""Seconds that a round is expected to take when none is over."""


@dataclass(frozen=True)
class RunStatus:
    """A run and its heartbeat, with ages in seconds by this machine's clock."""

    run: Run | None = None
    heartbeat: Heartbeat | None = None
    heartbeat_age: float = 0.0
    seconds_unchanged: float = 0.0
    """Since the log or the heartbeat last changed."""
    log_age: float = 0.0
    """Since the log was last read."""
    seconds_unanswered: float = 0.0
    """Since the pending request to the file system; 0 if there is none."""
    absent: bool = False
    problem: BadInput | None = None

    @property
    def alive(self) -> bool:
        """Whether there was a heartbeat recently."""
        return self.heartbeat is not None and self.heartbeat_age < SILENCE

    @property
    def ended(self) -> str:
        """How the run ended; empty if it has not, or has been started again."""
        over = self.run is not None and self.run.status != "running" and not self.alive
        return self.run.status if over and self.run else ""

    @property
    def silent(self) -> bool:
        """Whether the run has not ended, and nothing of it has changed for long."""
        unchanged = self.seconds_unchanged >= SILENCE
        return self.run is not None and not self.ended and not self.alive and unchanged

    @property
    def rounds(self) -> int:
        return self.run.config.federation.rounds if self.run else 0

    @property
    def rounds_completed(self) -> int:
        """Completed rounds by log or heartbeat; the heartbeat is ahead, as rows reach the disk later."""
        if self.run is None:
            return 0
        reported = self.heartbeat.round - 1 if self.heartbeat and self.alive else 0
        return max(self.run.rounds_done, min(reported, self.rounds))

    @property
    def seconds_per_round(self) -> float:
        """Mean over the recent rounds; NaN if there is none yet."""
        if self.run is None or not self.run.rounds_done:
            return math.nan
        return float(self.run["/round/seconds"][-RECENT:].mean())

    @property
    def seconds_waited(self) -> float:
        """Seconds that rank 0 had waited for missing ranks at its last heartbeat; 0 if not long enough."""
        if self.heartbeat is None or not self.heartbeat.missing or self.ended:
            return 0.0
        seconds = self.heartbeat.time - self.heartbeat.since
        return seconds if seconds >= MIN_REPORTED_WAIT else 0.0

    @property
    def overdue(self) -> bool:
        """Whether rank 0 waits for longer than rounds take; while clients train, it always waits."""
        usual = FIRST_ROUND if math.isnan(self.seconds_per_round) else 2 * self.seconds_per_round
        return self.seconds_waited > max(SILENCE, usual)

    @property
    def within_round(self) -> Heartbeat | None:
        """The heartbeat if it tells how many clients of a round that is not over are trained."""
        beat = self.heartbeat
        if beat is None or not self.alive or self.ended or not beat.selected:
            return None
        return None if self.run is not None and beat.round <= self.run.rounds_done else beat


class StatusTracker:
    """Turns snapshots into statuses; records by the monotonic clock when something changed."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.log_changed = self.heartbeat_changed = -math.inf
        self.log_read = time.monotonic()

    def update(self, snapshot: Snapshot | None, pending_since: float) -> RunStatus:
        """Returns the status after a poll; `snapshot` is None if there is no answer since `pending_since`."""
        now = time.monotonic()
        if snapshot is not None:
            self._record(snapshot, now)
        latest = self.snapshot or Snapshot()
        return RunStatus(
            run=latest.run,
            heartbeat=latest.heartbeat,
            heartbeat_age=now - self.heartbeat_changed,
            seconds_unchanged=now - max(self.log_changed, self.heartbeat_changed),
            log_age=now - self.log_read,
            seconds_unanswered=now - pending_since if snapshot is None else 0.0,
            absent=latest.absent,
            problem=latest.problem,
        )

    def _record(self, snapshot: Snapshot, now: float) -> None:
        """Records a snapshot; ages of the first one come from the file's own times."""
        before, self.snapshot = self.snapshot, snapshot
        if not snapshot.absent and snapshot.problem is None:
            self.log_read = now
        if snapshot.run is not None and (before is None or before.run is not snapshot.run):
            self.log_changed = now if before else now - max(0.0, time.time() - snapshot.written)
        if snapshot.heartbeat is not None and (before is None or before.heartbeat != snapshot.heartbeat):
            self.heartbeat_changed = now if before else now - max(0.0, time.time() - snapshot.heartbeat.time)
