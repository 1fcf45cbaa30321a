"""A sign of life beside a log: where rank 0 stands and whom it waits for, for those who watch."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcfl.comm.communicator import Communicator
from hpcfl.utils.files import part_file, remove_leftovers

INTERVAL = 3.0
"""Seconds between signs."""
LARGEST = 2**20
"""Bytes of the longest sign that is read."""


@dataclass(frozen=True)
class Heartbeat:
    """What rank 0 heartbeat last; times are seconds on its own clock."""

    time: float
    round: int
    """From 1; 0: the run is starting."""
    part: str
    """Of the round, as in the log's seconds."""
    missing: tuple[int, ...]
    """The ranks that it waits for."""
    since: float
    """When that wait began."""


def heartbeat_path(log: Path) -> Path:
    """Returns where the signs of a run are: beside its log."""
    return log.with_name(f"{log.name}.live")


class HeartbeatThread(threading.Thread):
    """Leaves a sign now and every few seconds, until the run is left; what a killed run left is cleared.

    It is a thread so that rank 0 gives signs while it computes, and is not held up where the file system
    answers late. It never calls MPI, and a sign that cannot be written is left out.
    """

    def __init__(self, log: Path, comm: Communicator):
        super().__init__(daemon=True)
        self.path, self.comm = heartbeat_path(log), comm
        self.over = threading.Event()

    def __enter__(self) -> HeartbeatThread:
        self.comm.round, self.comm.part = 0, "start"  # a link may have served another run before
        with suppress(OSError):
            remove_leftovers(self.path)
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.join(INTERVAL)
        with suppress(OSError):
            self.path.unlink()

    def run(self) -> None:
        while True:
            with suppress(OSError):
                self._write()
            if self.over.wait(INTERVAL):
                return

    def _write(self) -> None:
        missing, since = self.comm.missing_ranks()
        heartbeat = Heartbeat(time.time(), self.comm.round, self.comm.part, tuple(missing), since)
        with part_file(self.path) as part:
            part.write_text(json.dumps(asdict(heartbeat)))
            os.replace(part, self.path)


def read_heartbeat(log: Path) -> Heartbeat | None:
    """Returns the last sign of a run; None: there is none, or something else has its name.

    What a file system says otherwise is raised as the OSError that it is.
    """
    try:
        handle = os.open(heartbeat_path(log), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return parse_heartbeat(os.read(handle, LARGEST))
    finally:
        os.close(handle)


def parse_heartbeat(text: bytes) -> Heartbeat | None:
    """Returns the sign in a text; None: it is none."""
    try:
        heartbeat = json.loads(text)
        heartbeat = Heartbeat(
            heartbeat["time"],
            heartbeat["round"],
            heartbeat["part"],
            tuple(heartbeat["missing"]),
            heartbeat["since"],
        )
        times = all(type(at) in (int, float) and 0 <= at < 1e11 for at in (heartbeat.time, heartbeat.since))
        whole = all(
            type(number) is int and 0 <= number < 1e9 for number in (heartbeat.round, *heartbeat.missing)
        )
        return heartbeat if times and whole and _is_part_name(heartbeat.part) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_part_name(part: Any) -> bool:
    return isinstance(part, str) and part.isascii() and part.isalpha() and len(part) <= 20
