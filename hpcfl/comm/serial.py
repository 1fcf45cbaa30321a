"""The communicator of a single process, which is server and worker; no messages are sent."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from hpcfl.comm.communicator import COUNTERS, Communicator, ControlFlags


class SerialCommunicator(Communicator):
    """One rank: every collective returns its own input."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1, local_rank=0, library="none")

    def setup_nodes(self, pretend_nodes: int, stall_minutes: float) -> None:
        self.counters = [0] * COUNTERS

    def fetch_add(self, counter: int, by: int = 1) -> int:
        self.counters[counter] += by
        return self.counters[counter] - by

    def read_counter(self, counter: int) -> int:
        return self.counters[counter]

    def mark_alive(self) -> None:
        pass

    def wait_below(self, counter: int, limit: int) -> None:
        assert self.counters[counter] < limit, "nobody else would make it so"

    def broadcast(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, np.ndarray]:
        return flags, body

    def gather(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        return flags, [body]

    def allgather_object(self, value: Any) -> list[Any]:
        return [value]

    def first_ranks(self, size: int) -> SerialCommunicator:
        return self

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self, code: int) -> NoReturn:
        sys.exit(code)
