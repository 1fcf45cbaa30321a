"""Where rank 0's seconds of a round go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hpcfl.comm.communicator import Communicator
from hpcfl.log.schema import ROUND_PARTS


class Stopwatch:
    """Adds up seconds by part; transfers within any part count as `comm`."""

    def __init__(self, comm: Communicator):
        self.comm, self.traffic = comm, comm.traffic
        self.parts = dict.fromkeys(ROUND_PARTS, 0.0)
        self.start = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.comm.part = name
        start, moved = time.perf_counter(), self.traffic.transfer_seconds
        yield
        moved = self.traffic.transfer_seconds - moved
        self.parts["comm"] += moved
        self.parts[name] += time.perf_counter() - start - moved

    def lap(self) -> tuple[float, dict[str, float]]:
        """Returns the seconds since the last lap and their parts, and starts again."""
        now = time.perf_counter()
        total, parts = now - self.start, self.parts
        self.start, self.parts = now, dict.fromkeys(ROUND_PARTS, 0.0)
        return total, parts
