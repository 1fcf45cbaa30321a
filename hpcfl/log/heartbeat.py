"""The heartbeat file beside a log: what rank 0 does and which ranks it waits for, for `hpcfl watch`."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcfl.comm.communicator import Communicator
from hpcfl.utils.files import remove_leftovers, temporary_path

INTERVAL = 3.0
"""Seconds between heartbeats."""
MAX_BYTES = 2**20
"""Bytes that are read of a heartbeat file."""


@dataclass(frozen=True)
class Heartbeat:
    """State of rank 0 at its last heartbeat; times are seconds on its clock."""

    time: float
    round: int
    """Counted from 1; 0: the run is starting."""
    part: str
    """Part of the round, as in the log's /round/seconds_…; `start`: the run is starting."""
    missing: tuple[int, ...]
    """Ranks that rank 0 waits for."""
    since: float
    """Time when that wait began."""
    trained: int = 0
    """Clients trained in this round so far, as far as rank 0 knows."""
    selected: int = 0
    """Clients selected for this round."""


def heartbeat_path(log: Path) -> Path:
    """Returns the path of the heartbeat file of a log."""
    return log.with_name(f"{log.name}.live")


class HeartbeatThread(threading.Thread):
    """Writes the heartbeat file every few seconds, and removes it at the end of the run.

    It is a thread, so that heartbeats go on while rank 0 computes, and a slow file system does not delay
    rank 0. It never calls MPI. A heartbeat that cannot be written is skipped.
    """

    def __init__(self, log: Path, comm: Communicator, show: Callable[[Heartbeat], None] = lambda beat: None):
        """`show` is called with every heartbeat."""
        super().__init__(daemon=True)
        self.show = show
        self.path, self.comm = heartbeat_path(log), comm
        self.stopped = threading.Event()

    def __enter__(self) -> HeartbeatThread:
        # the communicator may have served another run before
        self.comm.round, self.comm.part, self.comm.selected = 0, "start", 0
        with suppress(OSError):
            remove_leftovers(self.path)
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopped.set()
        self.join(INTERVAL)
        with suppress(OSError):
            self.path.unlink()

    def run(self) -> None:
        while True:
            heartbeat = self._heartbeat()
            with suppress(OSError):
                self._write(heartbeat)
            self.show(heartbeat)
            if self.stopped.wait(INTERVAL):
                return

    def _heartbeat(self) -> Heartbeat:
        comm = self.comm
        missing, since = comm.missing_ranks()
        clients = comm.num_trained(), comm.selected
        return Heartbeat(time.time(), comm.round, comm.part, tuple(missing), since, *clients)

    def _write(self, heartbeat: Heartbeat) -> None:
        with temporary_path(self.path) as temporary:
            with open(temporary, "x") as file:
                file.write(json.dumps(asdict(heartbeat)))
            os.replace(temporary, self.path)


def read_heartbeat(log: Path) -> Heartbeat | None:
    """Returns the last heartbeat of a run; None: there is no heartbeat file, or it is something else.

    Other errors of the file system are raised as OSError.
    """
    try:
        handle = os.open(heartbeat_path(log), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return parse_heartbeat(os.read(handle, MAX_BYTES))
    finally:
        os.close(handle)


def parse_heartbeat(text: bytes) -> Heartbeat | None:
    """Returns the heartbeat in the text of a file; None: it is not a valid heartbeat."""
    try:
        raw = json.loads(text)
        if not isinstance(raw["missing"], list):
            return None
        waits = tuple(raw["missing"]), raw["since"]
        clients = raw.get("trained", 0), raw.get("selected", 0)  # earlier versions do not have them
        heartbeat = Heartbeat(raw["time"], raw["round"], raw["part"], *waits, *clients)
        times, numbers = (heartbeat.time, heartbeat.since), (heartbeat.round, *heartbeat.missing, *clients)
        valid_times = all(type(at) in (int, float) and 0 <= at < 1e11 for at in times)
        valid_numbers = all(type(number) is int and 0 <= number < 1e9 for number in numbers)
        return heartbeat if valid_times and valid_numbers and _is_part_name(heartbeat.part) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_part_name(part: Any) -> bool:
    return isinstance(part, str) and part.isascii() and part.isalpha() and len(part) <= 20
