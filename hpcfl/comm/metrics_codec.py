"""What a rank tells rank 0 of its clients after a round: fixed-size records, no pickles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

LOSSES = ("loss", "ce", "align", "proxy", "consistency", "gradient_align", "gradient_proxy")
"""A client's training loss, its parts, and gradients of these parts ÷ that of the cross-entropy."""
SAVED_CLIENT = np.dtype([("client", "<i4"), ("at", "<i8"), ("nbytes", "<i8"), ("digest", "S32")])
UNDEFINED = -1
"""Right answers by prototypes where there are no prototypes."""


def record_dtype(classes: int) -> np.dtype:
    """Returns the type of one client's record."""
    return np.dtype(
        [
            ("client", "<i4"),
            ("trained", "?"),
            ("evaluated", "?"),
            ("head", "<i4"),
            ("global", "<i4"),
            ("local", "<i4"),
            ("seconds", "<f8"),
            ("margin", "<f8", (classes,)),
            ("dead", "<f8", (classes,)),
            ("norm", "<f8", (classes,)),
            ("silhouette", "<f8"),
            ("accepted", "<i4"),
            ("right", "<i4"),
            ("threshold", "<f8", (2,)),
            *((name, "<f8") for name in LOSSES),
        ]
    )


@dataclass
class ClientMetrics:
    """One client's record, in this order; right answers are counts of test samples."""

    client: int
    trained: bool = False
    evaluated: bool = False
    by_head: int = UNDEFINED
    by_global: int = UNDEFINED
    by_local: int = UNDEFINED
    seconds: float = math.nan
    margin_K: np.ndarray | float = math.nan
    """Of its local prototypes."""
    dead_K: np.ndarray | float = math.nan
    """Share of units that are zero for a class."""
    norm_K: np.ndarray | float = math.nan
    """Length of the head's weights of a class."""
    silhouette: float = math.nan
    accepted: int = 0
    """Pseudo-labels, and how many of them are right."""
    accepted_right: int = 0
    thresholds: np.ndarray | float = math.nan
    """Least margin and largest distance of a pseudo-label."""
    loss: float = math.nan
    ce: float = math.nan
    align: float = math.nan
    proxy: float = math.nan
    consistency: float = math.nan
    gradient_align: float = math.nan
    gradient_proxy: float = math.nan


@dataclass(frozen=True)
class CpuSeconds:
    """A rank's CPU seconds since its last report: of work on clients, and of everything, waiting too."""

    work: float
    all: float


@dataclass(frozen=True)
class SavedClient:
    """Where in its rank's file a client's vector is on disk."""

    client: int
    at: int
    nbytes: int
    digest: str


def encode_metrics(
    effort: CpuSeconds, reports: Iterable[ClientMetrics], classes: int, saved: Sequence[SavedClient] = ()
) -> np.ndarray:
    """Returns the message: the rank's effort, what it has saved, then its records."""
    records = np.array([astuple(report) for report in reports], dtype=record_dtype(classes))
    head = np.array([*astuple(effort), len(saved)], dtype="<f8").tobytes()
    return np.frombuffer(bytearray(head + encode_saved(saved).tobytes() + records.tobytes()), dtype=np.uint8)


def decode_metrics(body: np.ndarray, classes: int) -> tuple[CpuSeconds, np.ndarray, list[SavedClient]]:
    """Returns the effort and the records of one rank, and what it has saved."""
    raw = body.tobytes()
    work, every, number = np.frombuffer(raw[:24], dtype="<f8").tolist()
    end = 24 + int(number) * SAVED_CLIENT.itemsize
    records = np.frombuffer(raw[end:], dtype=record_dtype(classes))
    return CpuSeconds(work, every), records, decode_saved(np.frombuffer(raw[24:end], dtype=np.uint8))


def encode_saved(saved: Sequence[SavedClient]) -> np.ndarray:
    """Returns the message that says what a rank has saved."""
    entries = np.array([(e.client, e.at, e.nbytes, e.digest.encode()) for e in saved], dtype=SAVED_CLIENT)
    return np.frombuffer(bytearray(entries.tobytes()), dtype=np.uint8)


def decode_saved(body: np.ndarray) -> list[SavedClient]:
    return [
        SavedClient(int(e["client"]), int(e["at"]), int(e["nbytes"]), e["digest"].decode())
        for e in np.frombuffer(body.tobytes(), dtype=SAVED_CLIENT)
    ]
