"""Values with which a Dirichlet split is possible, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hpcfl.config.schema import PartitionConfig
from hpcfl.errors import BadInput

ALPHAS = tuple(digit * 10.0**power for power in range(-4, 3) for digit in (1, 2, 5))


def working_values(
    settings: PartitionConfig,
    clients: int,
    min_samples: int,
    attempt: Callable[[PartitionConfig, int], object],
) -> str:
    """Returns in words a larger α and a smaller `min_samples` that work; where none does, fewer clients.

    `attempt` makes the split with other settings or clients, and raises BadInput if it is not possible.
    """

    def first(values: Iterable[float], key: str) -> list[str]:
        for value in values:
            try:
                changes = {} if key == "federation.clients" else {key.removeprefix("partition."): value}
                attempt(settings.model_copy(update=changes), clients if changes else int(value))
                return [f"{key} = {value:g}"]
            except BadInput:
                continue
        return []

    found = [
        *first((alpha for alpha in ALPHAS if alpha > settings.alpha), "partition.alpha"),
        *first(_smaller(min_samples, 0.75), "partition.min_samples"),
    ] or first(_smaller(clients, 0.5), "federation.clients")
    return f"; {' or '.join(found)} would work" if found else ""


def _smaller(number: int, factor: float) -> Iterator[int]:
    """Yields smaller and smaller numbers, each the last one times a factor, down to 1."""
    while (number := int(number * factor)) > 0:
        yield number
