"""A run as the file system shows it now: opened by name at each look, never held."""

from __future__ import annotations

import os
import queue
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.log.heartbeat import Heartbeat, read_heartbeat
from hpcfl.log.reader import Run, read_log
from hpcfl.log.schema import PARTS

RECENT = 20
"""Rounds that count as recent."""
SERIES = ("accuracy", "loss", "seconds", *(f"seconds_{part}" for part in PARTS))
WATCHED = {
    **{f"/round/{name}": slice(None) for name in SERIES},
    "/client/seconds": slice(-RECENT, None),
    "/client/rank": slice(-RECENT, None),
    "/client/diverged": slice(-1, None),
    "/clients/architecture": slice(None),
}
"""What is read of a log."""


@dataclass(frozen=True)
class Snapshot:
    """What one look gave."""

    run: Run | None = None
    """The last whole log, perhaps of an earlier look."""
    written: float = 0.0
    """When it was written, on the file system's clock."""
    heartbeat: Heartbeat | None = None
    absent: bool = False
    """There is no file of that name."""
    problem: BadInput | None = None
    """Why this look did not give the log."""


class LogPoller:
    """Looks at a run; the log is read again only where its name leads to another file than before.

    Opening, rather than asking for a name's attributes, makes network file systems look again.
    """

    def __init__(self, path: Path):
        self.path = path
        self.seen = Snapshot()
        self.identity: tuple[int, ...] = ()

    def __call__(self) -> Snapshot:
        heartbeat = self.seen.heartbeat
        with suppress(OSError):  # the last one grows old then, which is said
            heartbeat = read_heartbeat(self.path)
        try:
            run, written = self._log()
            self.seen = Snapshot(run, written, heartbeat)
        except FileNotFoundError:
            self.seen = Snapshot(self.seen.run, self.seen.written, heartbeat, absent=True)
        except OSError as error:
            problem = BadInput(f"cannot read {self.path}: {error.strerror or error}")
            self.seen = Snapshot(self.seen.run, self.seen.written, heartbeat, problem=problem)
        except (BadInput, TypeError, ValueError) as error:
            problem = error if isinstance(error, BadInput) else BadInput(f"{self.path} is no log ({error})")
            self.seen = Snapshot(self.seen.run, self.seen.written, heartbeat, problem=problem)
        return self.seen

    def _log(self) -> tuple[Run, float]:
        with open(self.path, "rb", opener=_at_once) as opened:
            there = os.fstat(opened.fileno())
            if not stat.S_ISREG(there.st_mode):
                raise BadInput(f"cannot read {self.path}: not a file")
            identity = (there.st_dev, there.st_ino, there.st_mtime_ns, there.st_size)
            if identity != self.identity or self.seen.run is None:
                run = read_log(self.path, WATCHED)
                self.identity = identity
                return run, there.st_mtime
            return self.seen.run, there.st_mtime


def _at_once(path: str, flags: int) -> int:
    """Opens a file without waiting for anybody to write to it, where it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


class PollThread(threading.Thread):
    """Looks when asked, in a thread: a file system that does not answer then holds up nobody."""

    def __init__(self, look: Callable[[], Snapshot]):
        super().__init__(daemon=True)
        self.look = look
        self.questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Snapshot | Exception] = queue.SimpleQueue()
        self.asked = 0.0
        """When the look began that has not come to its end; 0: none."""

    def run(self) -> None:
        while True:
            self.questions.get()
            try:
                self.answers.put(self.look())
            except Exception as error:
                self.answers.put(error)

    def ask(self, patience: float) -> Snapshot | None:
        """Returns a new look; None: the file system has not answered yet."""
        if not self.asked:
            self.asked = time.monotonic()
            self.questions.put(None)
        try:
            answer = self.answers.get(timeout=patience)
        except queue.Empty:
            return None
        self.asked = 0.0
        if isinstance(answer, Exception):
            raise answer
        return answer
