"""Bytes of memory by purpose; bytes of a round's messages, as the papers count and in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.codec import Codec
from hpcfl.federation.run_plan import RunPlan


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by purpose."""

    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


class Messages:
    """The messages of a round; all uploads lie in rank 0's memory at once."""

    def __init__(self, plan: RunPlan, algorithm: Algorithm, participants: Sequence[np.ndarray]):
        """`participants` are those of some rounds; memory is that of the round which needs most."""
        self.algorithm, self.participants = algorithm, participants
        self.owned_MK = plan.class_counts_MK > 0
        self.up, self.down = Codec(algorithm.upload_arrays()), Codec(algorithm.download_arrays())
        self.size_M = np.array([self.up.expected_size(owned_K) for owned_K in self.owned_MK])
        """Bytes of each client's upload in memory."""
        self.download = self.down.expected_size(np.any(self.owned_MK, axis=0))
        """Bytes of a download in memory."""

    @property
    def counted(self) -> tuple[float, float]:
        """Mean bytes up and down in a round after the first, as the papers count.

        They are 0 where the download is made once.
        """
        if self.algorithm.receivers == "once":
            return 0.0, 0.0
        up_M = np.array([self.up.expected_bytes(owned_K) for owned_K in self.owned_MK])
        everyone = self.algorithm.receivers == "all"
        receivers = len(self.owned_MK) if everyone else len(self.participants[0])
        return (
            float(np.mean([up_M[selected].sum() for selected in self.participants])),
            float(receivers * self.down.expected_bytes(np.any(self.owned_MK, axis=0))),
        )

    def uploads(self, clients: Collection[int]) -> int:
        """Returns the bytes of these clients' uploads in memory."""
        among = list(clients)
        return max(int(self.size_M[np.intersect1d(selected, among)].sum()) for selected in self.participants)

    def workers(self, clients: Collection[int], ranks: int) -> int:
        """Returns the bytes of messages on so many ranks that train these clients.

        Each rank has a download as it came and as its clients use it, and one upload twice, while it copies.
        """
        largest = max((int(self.size_M[i]) for i in clients), default=0)
        return ranks * (2 * self.download + largest) + self.uploads(clients)

    def server(self, is_worker: bool) -> int:
        """Returns the bytes of messages on rank 0: all uploads, the last download twice, the new one twice.

        Those that a single process has as a worker are not counted again.
        """
        return 2 * self.download + (
            0 if is_worker else 2 * self.download + self.uploads(range(len(self.size_M)))
        )
