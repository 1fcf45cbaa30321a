"""One process: server and clients in turn, nothing travels."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from hpcfl.comm.communicator import COUNTERS, Communicator, ControlFlags


class SerialCommunicator(Communicator):
    def __init__(self) -> None:
        super().__init__(rank=0, size=1, local_rank=0, library="none")

    def meet(self, pretend_nodes: int, stall_minutes: float) -> None:
        self.counters = [0] * COUNTERS

    def take(self, counter: int, by: int = 1) -> int:
        self.counters[counter] += by
        return self.counters[counter] - by

    def peek(self, counter: int) -> int:
        return self.counters[counter]

    def stir(self) -> None:
        pass

    def wait_below(self, counter: int, limit: int) -> None:
        assert self.counters[counter] < limit, "nobody else would make it so"

    def share(self, nbytes: int) -> np.ndarray:
        return np.zeros(nbytes, dtype=np.uint8)

    def broadcast(self, word: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, np.ndarray]:
        return word, body

    def gather(self, word: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        return word, [body]

    def facts(self, mine: Any) -> list[Any]:
        return [mine]

    def first(self, size: int) -> SerialCommunicator:
        return self

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self, code: int) -> NoReturn:
        sys.exit(code)
