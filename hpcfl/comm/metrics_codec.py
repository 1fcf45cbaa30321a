"""The message with which a rank sends its clients' metrics to rank 0: fixed-size records, no pickles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

LOSSES = ("loss", "ce", "align", "proxy", "consistency", "gradient_align", "gradient_proxy")
"""The training loss, its terms, and the gradient norms of two terms ÷ that of the cross-entropy."""
SAVED_CLIENT = np.dtype([("client", "<i4"), ("at", "<i8"), ("nbytes", "<i8"), ("digest", "S32")])
UNDEFINED = -1
"""Number of correct predictions by prototypes where there are no prototypes."""


def record_dtype(classes: int) -> np.dtype:
    """Returns the dtype of one client's record; its fields are in the order of `ClientMetrics`."""
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
            ("accepted_correct", "<i4"),
            ("threshold", "<f8", (2,)),
            *((name, "<f8") for name in LOSSES),
        ]
    )


@dataclass
class ClientMetrics:
    """Metrics of one client in one round; `by_*` count correct predictions on its test samples."""

    client: int
    trained: bool = False
    evaluated: bool = False
    by_head: int = UNDEFINED
    by_global: int = UNDEFINED
    by_local: int = UNDEFINED
    seconds: float = math.nan
    margin_K: np.ndarray | float = math.nan
    """Margin of each local prototype."""
    dead_K: np.ndarray | float = math.nan
    """Share of feature units that are zero for all samples of a class."""
    norm_K: np.ndarray | float = math.nan
    """Norm of the head's weights of a class."""
    silhouette: float = math.nan
    accepted: int = 0
    """Number of accepted pseudo-labels."""
    accepted_correct: int = 0
    """Number of accepted pseudo-labels that are correct."""
    thresholds: np.ndarray | float = math.nan
    """Smallest margin and largest distance of an accepted pseudo-label."""
    loss: float = math.nan
    ce: float = math.nan
    align: float = math.nan
    proxy: float = math.nan
    consistency: float = math.nan
    gradient_align: float = math.nan
    gradient_proxy: float = math.nan


@dataclass(frozen=True)
class CpuSeconds:
    """CPU seconds of a rank since its last message: on clients, and in total, including waiting."""

    work: float
    total: float


@dataclass(frozen=True)
class SavedClient:
    """Byte range of a client's state in the checkpoint file of the rank that wrote it."""

    client: int
    at: int
    nbytes: int
    digest: str


def encode_metrics(
    cpu: CpuSeconds, metrics: Iterable[ClientMetrics], classes: int, saved: Sequence[SavedClient] = ()
) -> np.ndarray:
    """Returns the message of one rank: CPU seconds, the clients it has saved, then the metrics."""
    records = np.array([astuple(each) for each in metrics], dtype=record_dtype(classes))
    header = np.array([*astuple(cpu), len(saved)], dtype="<f8").tobytes()
    return np.frombuffer(
        bytearray(header + encode_saved(saved).tobytes() + records.tobytes()), dtype=np.uint8
    )


def decode_metrics(body: np.ndarray, classes: int) -> tuple[CpuSeconds, np.ndarray, list[SavedClient]]:
    """Returns the CPU seconds, the records and the saved clients in the message of one rank."""
    raw = body.tobytes()
    work, total, num_saved = np.frombuffer(raw[:24], dtype="<f8").tolist()
    end = 24 + int(num_saved) * SAVED_CLIENT.itemsize
    records = np.frombuffer(raw[end:], dtype=record_dtype(classes))
    return CpuSeconds(work, total), records, decode_saved(np.frombuffer(raw[24:end], dtype=np.uint8))


def encode_saved(saved: Sequence[SavedClient]) -> np.ndarray:
    """Returns the bytes that list the clients a rank has saved."""
    entries = np.array([(e.client, e.at, e.nbytes, e.digest.encode()) for e in saved], dtype=SAVED_CLIENT)
    return np.frombuffer(bytearray(entries.tobytes()), dtype=np.uint8)


def decode_saved(body: np.ndarray) -> list[SavedClient]:
    """Returns the saved clients listed in the bytes."""
    return [
        SavedClient(int(e["client"]), int(e["at"]), int(e["nbytes"]), e["digest"].decode())
        for e in np.frombuffer(body.tobytes(), dtype=SAVED_CLIENT)
    ]
