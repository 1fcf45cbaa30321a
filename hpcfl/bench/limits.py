"""Limits of the machine: speed of matrix products and of memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from hpcfl.training.step.layers import product
from hpcfl.utils import accelerator

SIDE = 1536
"""Rows of the matrices: large enough to reach the limit, small enough for some hundredths of a second."""
TRIES = 4
FLOATS = 16 * 2**20
"""Floats in each array: more than caches hold."""


class MachineLimits:
    """Measures the limits anew at each call, because other processes slow them down too."""

    def __init__(self, device: torch.device, kind: torch.dtype = torch.float32):
        self.device = device
        self.a_SS, self.b_SS = torch.randn(2, SIDE, SIDE, device=device, dtype=kind)
        self.c_SS = torch.empty_like(self.a_SS)
        self.x_W, self.y_W = torch.ones(2, FLOATS, device=device)

    def multiplications(self) -> float:
        """Returns FLOP per second of a matrix product, by BLAS or oneDNN, whichever is faster."""
        by_blas = self._best(lambda: torch.mm(self.a_SS, self.b_SS, out=self.c_SS))
        return 2 * SIDE**3 / min(by_blas, self._best(lambda: product(self.a_SS, self.b_SS)))

    def memory(self) -> float:
        """Returns bytes per second of y ← y + ax: two arrays read, one written."""
        return 3 * 4 * FLOATS / self._best(lambda: self.y_W.add_(self.x_W, alpha=0.5))

    def _best(self, work: Callable[[], object]) -> float:
        """Returns the seconds of the fastest try."""
        return min(timed(work, self.device) for _ in range(TRIES))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Returns the seconds that the work takes until the device has finished it."""
    accelerator.synchronise(device)
    start = time.perf_counter()
    work()
    accelerator.synchronise(device)
    return time.perf_counter() - start
