"""Which rank trains which client. Placement never changes results."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np


class Pinned:
    """A fixed table: every client stays on one rank, the ranks' costs balanced."""

    def __init__(self, costs: Sequence[float], workers: Sequence[int]):
        """Deals clients, the most expensive first, each to the rank with the least to do so far."""
        self.rank_of = np.empty(len(costs), dtype=np.int64)
        heap = [(0.0, rank) for rank in workers]
        for client in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
            load, rank = heapq.heappop(heap)
            self.rank_of[client] = rank
            heapq.heappush(heap, (load + costs[client], rank))

    def hosted(self, rank: int) -> list[int]:
        """Returns the clients whose state lives on this rank."""
        return np.flatnonzero(self.rank_of == rank).tolist()

    def take(self, rank: int, participants: np.ndarray) -> list[int]:
        """Returns the participants that this rank trains."""
        return participants[self.rank_of[participants] == rank].tolist()
