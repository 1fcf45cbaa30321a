"""Forecast of the memory of GPUs."""

from __future__ import annotations

from collections import Counter

from hpcfl.plan.forecast import Forecast
from hpcfl.plan.memory import MemoryEstimate

CUDA_CONTEXT_BYTES = 400 * 2**20
"""Bytes that a CUDA context takes on a device, per rank."""


def gpus(forecast: Forecast) -> list[int]:
    """Returns the first pool of each GPU; it has several if each client stays on one rank."""
    places = [forecast.locations[pool.ranks[0]] for pool in forecast.pools]
    return [n for n, place in enumerate(places) if places.index(place) == n and not forecast.on_cpu(n)]


def gpu_memory(forecast: Forecast, pool: int) -> MemoryEstimate:
    """Returns the memory that a pool's GPU must have for all ranks that use it, rank 0 too.

    They also use what is free beside it.
    """
    place = forecast.locations[forecast.pools[pool].ranks[0]]
    parts = Counter({"contexts": CUDA_CONTEXT_BYTES * forecast.locations.count(place)})
    for number, each in enumerate(forecast.pools):
        if forecast.locations[each.ranks[0]] == place:
            for name, nbytes in forecast.training_memory(number).items():
                parts[name] += len(each.ranks) * nbytes
    return MemoryEstimate(parts)
