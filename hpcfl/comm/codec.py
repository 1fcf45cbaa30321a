"""The bytes that travel in a round: prototypes down, prototypes up, metrics up. Nothing is pickled.

An upload is: client (int32), flags (uint8), a bit per class, a count (int32) per present class where the
aggregation asks for counts, and a row of float32 per present class: its D entries, or with masks those of
the class's own dimensions. A download is a bit per class and the rows. Absent classes cost their bit and
nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

DIVERGED = 1
_HEAD = np.dtype([("client", "<i4"), ("flags", "u1")])


@dataclass(frozen=True)
class ClientUpload:
    """What one client sends: its rows, its bits, and counts (empty where they do not travel)."""

    client: int
    diverged: bool
    present_K: np.ndarray
    value_RD: np.ndarray
    count_R: np.ndarray


@dataclass(frozen=True)
class PrototypeCodec:
    """The format for K classes and D features, with or without sample counts and masks."""

    classes: int
    features: int
    counts: bool
    mask_KD: np.ndarray | None = None
    """The dimensions of each class that travel; None: all."""

    def pack_down(self, present_K: np.ndarray, value_RD: np.ndarray) -> np.ndarray:
        """Returns the message with the present rows; an empty one where there are none."""
        if not present_K.any():
            return np.empty(0, dtype=np.uint8)
        message = np.packbits(present_K).tobytes() + self._compressed(present_K, value_RD)
        return np.frombuffer(bytearray(message), dtype=np.uint8)

    def unpack_down(self, body: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bits and the rows."""
        if not body.size:
            return np.zeros(self.classes, dtype=bool), np.empty((0, self.features), dtype=np.float32)
        reader = _Reader(body)
        present_K = reader.bits(self.classes)
        return present_K, self._rows(present_K, reader)

    def pack_up(self, uploads: Iterable[ClientUpload]) -> np.ndarray:
        """Returns one message with a rank's parcels, each added as it comes."""
        message = bytearray()
        for upload in uploads:
            message += np.array([(upload.client, DIVERGED * upload.diverged)], dtype=_HEAD).tobytes()
            message += np.packbits(upload.present_K).tobytes()
            if self.counts:
                message += upload.count_R.astype("<i4").tobytes()
            message += self._compressed(upload.present_K, upload.value_RD)
        return np.frombuffer(message, dtype=np.uint8)

    def unpack_up(self, bodies: Iterable[np.ndarray]) -> list[ClientUpload]:
        """Returns the parcels of all ranks in client order."""
        uploads = [upload for body in bodies for upload in self._parcels(_Reader(body))]
        return sorted(uploads, key=lambda upload: upload.client)

    def _parcels(self, reader: _Reader) -> Iterator[ClientUpload]:
        while reader.left:
            head = reader.take(_HEAD, 1)[0]
            present_K = reader.bits(self.classes)
            rows = int(present_K.sum())
            count_R = reader.take("<i4", rows if self.counts else 0)
            value_RD = self._rows(present_K, reader)
            yield ClientUpload(
                int(head["client"]), bool(head["flags"] & DIVERGED), present_K, value_RD, count_R
            )

    def _compressed(self, present_K: np.ndarray, value_RD: np.ndarray) -> bytes:
        """Returns the rows' entries that travel: the sparse-prototype paper's Eq. (8)."""
        kept = value_RD if self.mask_KD is None else value_RD[self.mask_KD[present_K]]
        return kept.astype("<f4").tobytes()

    def _rows(self, present_K: np.ndarray, reader: _Reader) -> np.ndarray:
        """Returns the rows, zero where nothing travelled: its Eq. (7)."""
        floats = reader.take("<f4", self.bytes_of_rows(present_K) // 4)
        if self.mask_KD is None:
            return floats.reshape(-1, self.features)
        value_RD = np.zeros((int(present_K.sum()), self.features), dtype=np.float32)
        value_RD[self.mask_KD[present_K]] = floats
        return value_RD

    def bytes_of_rows(self, present_K: np.ndarray) -> int:
        """Returns what the papers count: d floats per row, or as many as the class has of its own."""
        if self.mask_KD is None:
            return int(present_K.sum()) * self.features * 4
        return int(self.mask_KD[present_K].sum()) * 4

    @property
    def bytes_of_bits(self) -> int:
        """The bit per class that goes with the rows and that the papers do not count."""
        return -(-self.classes // 8)

    def bytes_aside(self, upload: ClientUpload) -> int:
        """Returns what goes up beside the rows and is not counted by the papers: bits and sample counts."""
        return self.bytes_of_bits + 4 * len(upload.value_RD) * self.counts


class _Reader:
    def __init__(self, body: np.ndarray):
        self.body = body
        self.at = 0

    @property
    def left(self) -> int:
        return self.body.size - self.at

    def take(self, dtype: np.typing.DTypeLike, number: int) -> np.ndarray:
        """Returns the next items as they lie in the message, perhaps unaligned."""
        nbytes = np.dtype(dtype).itemsize * int(number)
        self.at += nbytes
        return self.body[self.at - nbytes : self.at].view(dtype)

    def bits(self, number: int) -> np.ndarray:
        return np.unpackbits(self.take("u1", -(-number // 8)), count=number).astype(bool)
