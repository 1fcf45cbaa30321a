"""What ranks tell each other of a checkpoint: which clients to save, and where a rank has saved them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass

import numpy as np

DTYPE = np.dtype([("client", "<i4"), ("at", "<i8"), ("nbytes", "<i8"), ("digest", "S32")])


@dataclass(frozen=True)
class SavedClient:
    """Place of a client's state in the file of its rank."""

    client: int
    at: int
    nbytes: int
    digest: str


def encode_saved(saved: Sequence[SavedClient]) -> np.ndarray:
    """Returns the entries as bytes."""
    entries = np.array([astuple(entry) for entry in saved], dtype=DTYPE)
    return np.frombuffer(bytearray(entries.tobytes()), dtype=np.uint8)


def encode_ids(clients: Collection[int]) -> np.ndarray:
    """Returns the ids of clients as bytes."""
    return np.array(sorted(clients), dtype="<i4").view(np.uint8)


def decode_ids(message: np.ndarray) -> set[int]:
    return set(np.frombuffer(message.tobytes(), dtype="<i4").tolist())


def decode_saved(message: np.ndarray) -> list[SavedClient]:
    entries = np.frombuffer(message.tobytes(), dtype=DTYPE)
    return [
        SavedClient(client, at, nbytes, digest.decode()) for client, at, nbytes, digest in entries.tolist()
    ]
