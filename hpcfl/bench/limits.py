"""What the machine can do at most: multiply matrices, move memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

SIDE = 1536
"""Of the matrices: large enough to be at the limit, small enough to take a few hundredths of a second."""
TRIES = 4
WORDS = 16 * 2**20
"""Floats of each array: more than caches hold."""


class MachineLimits:
    """Measured again whenever asked, so that what runs beside it slows it down alike."""

    def __init__(self, device: torch.device):
        self.device = device
        self.a_SS, self.b_SS = torch.randn(2, SIDE, SIDE, device=device)
        self.c_SS = torch.empty_like(self.a_SS)
        self.x_W, self.y_W = torch.ones(2, WORDS, device=device)

    def multiplications(self) -> float:
        """Returns FLOP per second of a float32 matrix product."""
        return 2 * SIDE**3 / self._best(lambda: torch.mm(self.a_SS, self.b_SS, out=self.c_SS))

    def memory(self) -> float:
        """Returns bytes per second of y ← y + ax: two arrays read, one written."""
        return 3 * 4 * WORDS / self._best(lambda: self.y_W.add_(self.x_W, alpha=0.5))

    def _best(self, work: Callable[[], object]) -> float:
        """Returns the least seconds of some tries: a limit is what can be reached."""
        return min(timed(work, self.device) for _ in range(TRIES))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Returns the seconds that the work takes, until the device has done it."""
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
