"""The message that each rank sends to rank 0 after a round: CPU seconds, saved clients, features, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from hpcfl.checkpoint.saved_client import DTYPE, SavedClient, decode_saved, encode_saved

HEADER = np.dtype("<f8"), 4
"""CPU seconds on clients, in all, the number of saved clients, and the bytes of features."""


@dataclass(frozen=True)
class CpuSeconds:
    """A rank's CPU seconds since its last report: on clients, and in all, waiting included."""

    on_clients: float
    total: float


@dataclass(frozen=True)
class RankReport:
    """What one rank reports; `metrics` and `features` hold its clients' records as bytes."""

    cpu: CpuSeconds
    saved: Sequence[SavedClient]
    metrics: np.ndarray
    features: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.uint8))

    def encode(self) -> np.ndarray:
        header = np.array([*astuple(self.cpu), len(self.saved), len(self.features)], dtype=HEADER[0])
        return np.concatenate([header.view(np.uint8), encode_saved(self.saved), self.features, self.metrics])


def decode_report(message: np.ndarray) -> RankReport:
    """Returns the report in a message."""
    dtype, length = HEADER
    start = length * dtype.itemsize
    on_clients, total, saved, nbytes = np.frombuffer(message[:start].tobytes(), dtype=dtype).tolist()
    middle = start + int(saved) * DTYPE.itemsize
    end = middle + int(nbytes)
    return RankReport(
        CpuSeconds(on_clients, total), decode_saved(message[start:middle]), message[end:], message[middle:end]
    )
