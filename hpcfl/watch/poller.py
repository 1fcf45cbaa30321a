"""Reads a log and its heartbeat again and again; the file is opened by name each time and not kept open."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.log.heartbeat import Heartbeat, read_heartbeat
from hpcfl.log.reader import Run, read_log
from hpcfl.log.schema import ROUND_PARTS
from hpcfl.log.virtual_summary import NEEDED
from hpcfl.utils.hdf5_file import open_regular

RECENT = 20
"""Number of last rounds that means are taken over."""
SERIES = ("accuracy", "loss", "seconds", *(f"seconds_{part}" for part in ROUND_PARTS))
WATCHED = {
    **{f"/round/{name}": slice(None) for name in SERIES},
    "/client/seconds": slice(-RECENT, None),
    "/client/rank": slice(-RECENT, None),
    "/client/diverged": slice(-1, None),
    "/clients/architecture": slice(None),
    **NEEDED,
}
"""Datasets that are read, with their rows."""


@dataclass(frozen=True)
class Snapshot:
    """The result of one poll."""

    run: Run | None = None
    """The last valid log, perhaps from an earlier poll."""
    written: float = 0.0
    """When it was written, on the file system's clock."""
    heartbeat: Heartbeat | None = None
    absent: bool = False
    """Whether the file does not exist."""
    problem: BadInput | None = None
    """Why this poll could not read the log."""


class LogPoller:
    """Reads log and heartbeat of a run; the log is read again only if the file has changed.

    The file is opened and not only stat'ed, because opening makes network file systems refresh their caches.
    """

    def __init__(self, path: Path):
        self.path = path
        self.last = Snapshot()
        self.identity: tuple[int, ...] = ()

    def __call__(self) -> Snapshot:
        heartbeat = self.last.heartbeat
        with suppress(OSError):  # the last one is kept, and its age is shown
            heartbeat = read_heartbeat(self.path)
        try:
            run, written = self._log()
            self.last = Snapshot(run, written, heartbeat)
        except FileNotFoundError:
            self.last = Snapshot(self.last.run, self.last.written, heartbeat, absent=True)
        except OSError as error:
            problem = BadInput(f"cannot read {self.path}: {error.strerror or error}")
            self.last = Snapshot(self.last.run, self.last.written, heartbeat, problem=problem)
        except (BadInput, TypeError, ValueError) as error:
            problem = error if isinstance(error, BadInput) else BadInput(f"{self.path} is no log ({error})")
            self.last = Snapshot(self.last.run, self.last.written, heartbeat, problem=problem)
        return self.last

    def _log(self) -> tuple[Run, float]:
        """Returns the log and when it was written."""
        with open(open_regular(self.path), "rb") as opened:
            info = os.fstat(opened.fileno())
            identity = (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size)
            if identity != self.identity or self.last.run is None:
                run = read_log(self.path, WATCHED)
                self.identity = identity
                return run, info.st_mtime
            return self.last.run, info.st_mtime


class PollThread(threading.Thread):
    """Polls on request in a thread, so that a file system that does not answer blocks nobody."""

    def __init__(self, poll: Callable[[], Snapshot]):
        super().__init__(daemon=True)
        self.poll = poll
        self.requests: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[Snapshot | Exception] = queue.SimpleQueue()
        self.pending_since = 0.0
        """When the request was made that has no result yet; 0 if there is none."""

    def run(self) -> None:
        while True:
            self.requests.get()
            try:
                self.results.put(self.poll())
            except Exception as error:
                self.results.put(error)

    def request(self, timeout: float) -> Snapshot | None:
        """Returns a new snapshot; None if the file system has not answered within `timeout` seconds."""
        if not self.pending_since:
            self.pending_since = time.monotonic()
            self.requests.put(None)
        try:
            result = self.results.get(timeout=timeout)
        except queue.Empty:
            return None
        self.pending_since = 0.0
        if isinstance(result, Exception):
            raise result
        return result
