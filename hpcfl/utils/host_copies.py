"""Copies from a device to the host that are waited for together."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from hpcfl.utils.accelerator import to_host

LIMIT = 64 * 2**20
"""Bytes of copies that lie on the device before they are fetched."""


class HostCopies:
    """Values that are needed on the host, but not at once: one wait for the device serves all of them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Tensor, Callable[[Tensor], object]]] = []
        self.nbytes = 0

    def add(self, value: Tensor, use: Callable[[Tensor], object]) -> None:
        """Has `use` called with the value on the host: now if it is there, else by the next `finish`."""
        if value.device.type == "cpu":
            use(value)
            return
        self.waiting.append((value, use))
        self.nbytes += value.nbytes
        if self.nbytes > LIMIT:
            self.finish()

    def finish(self) -> None:
        """Fetches the values and has them used, in the order in which they were added."""
        waiting, self.waiting, self.nbytes = self.waiting, [], 0
        for (_, use), host in zip(waiting, to_host(*(value for value, _ in waiting)), strict=True):
            use(host)
