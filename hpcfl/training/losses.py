"""Losses of a training whose last steps may still run on the device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from torch import Tensor

from hpcfl.utils.accelerator import to_host


class PendingLosses(Mapping[str, float]):
    """Losses by name. Reading one waits for the device, unless they were fetched with other values before."""

    def __init__(
        self,
        names: Collection[str],
        on_device: Sequence[Tensor],
        compute: Callable[[Sequence[Tensor]], dict[str, float]],
    ):
        """`compute` gives the losses from the values of `on_device` on the host."""
        self.names, self.on_device, self.compute = names, on_device, compute
        self.found: dict[str, float] | None = None

    def finish(self, on_host: Sequence[Tensor]) -> None:
        """Takes the values of `on_device`, now that they are on the host."""
        self.found = self.compute(on_host)

    def __getitem__(self, name: str) -> float:
        if self.found is None:
            self.finish(to_host(*self.on_device))
        assert self.found is not None
        return self.found[name]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __or__(self, more: Mapping[str, float]) -> dict[str, float]:
        return dict(self) | dict(more)
