"""What the machine can do at most: multiply matrices, move memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

SIDE = 1536
"""Of the matrices: large enough to be at the limit, small enough to take a few hundredths of a second."""
WORDS = 16 * 2**20
"""Floats of each array: more than caches hold."""


class Limits:
    """Measured again whenever asked, so that what runs beside it slows it down alike."""

    def __init__(self, device: torch.device):
        self.device = device
        self.a_SS, self.b_SS = torch.randn(2, SIDE, SIDE, device=device)
        self.x_W, self.y_W = torch.ones(2, WORDS, device=device)

    def multiplications(self) -> float:
        """Returns FLOP per second of a float32 matrix product."""
        seconds = timed(lambda: self.a_SS @ self.b_SS, self.device)
        return 2 * SIDE**3 / seconds

    def memory(self) -> float:
        """Returns bytes per second of y ← y + ax: two arrays read, one written."""
        seconds = timed(lambda: self.y_W.add_(self.x_W, alpha=0.5), self.device)
        return 3 * 4 * WORDS / seconds


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
