"""Features of single samples that ranks send to rank 0 with their report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def _dtype(features: int) -> np.dtype:
    return np.dtype([("client", "<i4"), ("sample", "<i4"), ("z", "<f4", (features,))])


class RankFeatures:
    """The features that this rank sends after a round."""

    def __init__(self, features: int):
        self.dtype = _dtype(features)
        self.parts: list[np.ndarray] = []

    def add(self, client: int, sample_R: np.ndarray, z_RD: np.ndarray) -> None:
        """Adds the features of a client's samples, which are numbered within their part of its split."""
        rows = np.empty(len(sample_R), dtype=self.dtype)
        rows["client"], rows["sample"], rows["z"] = client, sample_R, z_RD
        self.parts.append(rows)

    def pop(self) -> np.ndarray:
        """Returns all rows as bytes and begins the next round."""
        parts, self.parts = self.parts, []
        data = b"".join(part.tobytes() for part in parts)
        return np.frombuffer(bytearray(data), dtype=np.uint8)


@dataclass(frozen=True)
class FeatureRows:
    """The features of all ranks in the order of clients and samples, so that no sum depends on ranks."""

    client_R: np.ndarray
    sample_R: np.ndarray
    z_RD: np.ndarray

    def of(self, selection: Sequence[np.ndarray]) -> FeatureRows:
        """Returns the rows of these samples, given by client; clients that sent nothing are left out."""
        wanted = set(_pairs(selection)) if len(self.client_R) else set()
        pairs = zip(self.client_R.tolist(), self.sample_R.tolist(), strict=True)
        wanted_R = np.array([pair in wanted for pair in pairs], dtype=bool)
        return FeatureRows(self.client_R[wanted_R], self.sample_R[wanted_R], self.z_RD[wanted_R])

    def table(self, selection: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the features of these samples, given by client, one row each; NaN: they were not sent."""
        place = {pair: row for row, pair in enumerate(_pairs(selection))}
        z_SD = np.full((len(place), self.z_RD.shape[1]), np.nan, dtype=np.float32)
        rows = self.of(selection)
        at_R = [place[pair] for pair in zip(rows.client_R.tolist(), rows.sample_R.tolist(), strict=True)]
        z_SD[at_R] = rows.z_RD
        return z_SD


def _pairs(selection: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    return [(client, sample) for client, sample_S in enumerate(selection) for sample in sample_S.tolist()]


def decode_features(messages: Sequence[np.ndarray], features: int) -> FeatureRows:
    """Returns the features in the messages of all ranks."""
    dtype = _dtype(features)
    rows = np.concatenate([np.frombuffer(message.tobytes(), dtype=dtype) for message in messages])
    rows = rows[np.lexsort((rows["sample"], rows["client"]))]
    return FeatureRows(rows["client"], rows["sample"], rows["z"])
