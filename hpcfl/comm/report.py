"""What a rank tells rank 0 of its clients after a round: fixed-size records, no pickles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import numpy as np

UNDEFINED = -1
"""Right answers by prototypes where there are no prototypes."""


def record(classes: int) -> np.dtype:
    """Returns the type of one client's record."""
    return np.dtype(
        [
            ("client", "<i4"),
            ("trained", "?"),
            ("evaluated", "?"),
            ("head", "<i4"),
            ("global", "<i4"),
            ("local", "<i4"),
            ("loss", "<f8"),
            ("seconds", "<f8"),
            ("margin", "<f8", (classes,)),
        ]
    )


@dataclass
class Report:
    """One client's record, in this order; right answers are counts of test samples."""

    client: int
    trained: bool = False
    evaluated: bool = False
    by_head: int = UNDEFINED
    by_global: int = UNDEFINED
    by_local: int = UNDEFINED
    loss: float = math.nan
    seconds: float = math.nan
    margin_K: np.ndarray | float = math.nan
    """Of its local prototypes."""


@dataclass(frozen=True)
class Effort:
    """A rank's CPU seconds since its last report: of work on clients, and of everything, waiting too."""

    work: float
    all: float


def pack(effort: Effort, reports: Iterable[Report], classes: int) -> np.ndarray:
    """Returns the message: the rank's effort, then its records."""
    records = np.array([astuple(report) for report in reports], dtype=record(classes))
    head = np.array(astuple(effort), dtype="<f8")
    return np.frombuffer(bytearray(head.tobytes() + records.tobytes()), dtype=np.uint8)


def unpack(body: np.ndarray, classes: int) -> tuple[Effort, np.ndarray]:
    """Returns the effort and the records of one rank."""
    raw = body.tobytes()
    return Effort(*np.frombuffer(raw[:16], dtype="<f8").tolist()), np.frombuffer(
        raw[16:], dtype=record(classes)
    )
