"""What a rank tells rank 0 of its clients after a round: fixed-size records, no pickles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import numpy as np

UNDEFINED = -1
"""Right answers by prototypes where there are no prototypes."""

RECORD = np.dtype(
    [
        ("client", "<i4"),
        ("trained", "?"),
        ("evaluated", "?"),
        ("head", "<i4"),
        ("global", "<i4"),
        ("local", "<i4"),
        ("loss", "<f8"),
        ("seconds", "<f8"),
    ]
)


@dataclass
class Report:
    """One client's record, in RECORD's order; right answers are counts of test samples."""

    client: int
    trained: bool = False
    evaluated: bool = False
    by_head: int = UNDEFINED
    by_global: int = UNDEFINED
    by_local: int = UNDEFINED
    loss: float = math.nan
    seconds: float = math.nan


def pack(busy: float, reports: Iterable[Report]) -> np.ndarray:
    """Returns the message: the rank's CPU seconds, then its records."""
    records = np.array([astuple(report) for report in reports], dtype=RECORD)
    return np.frombuffer(bytearray(np.float64(busy).tobytes() + records.tobytes()), dtype=np.uint8)


def unpack(body: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the CPU seconds and the records of one rank."""
    raw = body.tobytes()
    return float(np.frombuffer(raw[:8], dtype="<f8")[0]), np.frombuffer(raw[8:], dtype=RECORD)
