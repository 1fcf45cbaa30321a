"""Message formats of prototypes, from the server (down) and from clients (up). Nothing is pickled.

An upload is: client (int32), flags (uint8), a bitmap of present classes, a sample count (int32) per present
class if the aggregation needs counts, and a float32 row per present class: all D entries, or with masks only
the class's own dimensions. A download is a bitmap and the rows. An absent class costs only its bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

DIVERGED = 1
_HEADER = np.dtype([("client", "<i4"), ("flags", "u1")])


@dataclass(frozen=True)
class ClientUpload:
    """The upload of one client: R rows for its present classes, and counts (empty if they are not sent)."""

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
    """The dimensions of each class that are sent; None: all."""

    def pack_down(self, present_K: np.ndarray, value_RD: np.ndarray) -> np.ndarray:
        """Returns the download with the rows of the present classes; empty if there are none."""
        if not present_K.any():
            return np.empty(0, dtype=np.uint8)
        message = np.packbits(present_K).tobytes() + self._pack_rows(present_K, value_RD)
        return np.frombuffer(bytearray(message), dtype=np.uint8)

    def unpack_down(self, body: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns present_K and value_RD of a download."""
        if not body.size:
            return np.zeros(self.classes, dtype=bool), np.empty((0, self.features), dtype=np.float32)
        reader = _Reader(body)
        present_K = reader.read_bitmap(self.classes)
        return present_K, self._unpack_rows(present_K, reader)

    def pack_up(self, uploads: Iterable[ClientUpload]) -> np.ndarray:
        """Returns one message with all uploads of a rank; `uploads` may be a generator that trains."""
        message = bytearray()
        for upload in uploads:
            message += np.array([(upload.client, DIVERGED * upload.diverged)], dtype=_HEADER).tobytes()
            message += np.packbits(upload.present_K).tobytes()
            if self.counts:
                message += upload.count_R.astype("<i4").tobytes()
            message += self._pack_rows(upload.present_K, upload.value_RD)
        return np.frombuffer(message, dtype=np.uint8)

    def unpack_up(self, bodies: Iterable[np.ndarray]) -> list[ClientUpload]:
        """Returns the uploads of all ranks in client order."""
        uploads = [upload for body in bodies for upload in self._unpack_uploads(_Reader(body))]
        return sorted(uploads, key=lambda upload: upload.client)

    def _unpack_uploads(self, reader: _Reader) -> Iterator[ClientUpload]:
        while reader.remaining:
            header = reader.read(_HEADER, 1)[0]
            present_K = reader.read_bitmap(self.classes)
            rows = int(present_K.sum())
            count_R = reader.read("<i4", rows if self.counts else 0)
            value_RD = self._unpack_rows(present_K, reader)
            yield ClientUpload(
                int(header["client"]), bool(header["flags"] & DIVERGED), present_K, value_RD, count_R
            )

    def _pack_rows(self, present_K: np.ndarray, value_RD: np.ndarray) -> bytes:
        """Returns the row entries that are sent; with masks, Eq. (8) of the sparse-prototype paper."""
        sent = value_RD if self.mask_KD is None else value_RD[self.mask_KD[present_K]]
        return sent.astype("<f4").tobytes()

    def _unpack_rows(self, present_K: np.ndarray, reader: _Reader) -> np.ndarray:
        """Returns the rows, zero in entries that were not sent; with masks, Eq. (7) of that paper."""
        floats = reader.read("<f4", self.bytes_of_rows(present_K) // 4)
        if self.mask_KD is None:
            return floats.reshape(-1, self.features)
        value_RD = np.zeros((int(present_K.sum()), self.features), dtype=np.float32)
        value_RD[self.mask_KD[present_K]] = floats
        return value_RD

    def bytes_of_rows(self, present_K: np.ndarray) -> int:
        """Returns the bytes that the papers count: 4 per entry, D entries per row or those of its mask."""
        if self.mask_KD is None:
            return int(present_K.sum()) * self.features * 4
        return int(self.mask_KD[present_K].sum()) * 4

    @property
    def bytes_of_bitmap(self) -> int:
        """Bytes of the bitmap of present classes, which the papers do not count."""
        return -(-self.classes // 8)

    def side_bytes(self, upload: ClientUpload) -> int:
        """Returns the bytes of an upload that the papers do not count: bitmap and sample counts."""
        return self.bytes_of_bitmap + 4 * len(upload.value_RD) * self.counts


class _Reader:
    """Reads a message from its beginning to its end."""

    def __init__(self, body: np.ndarray):
        self.body = body
        self.offset = 0

    @property
    def remaining(self) -> int:
        return self.body.size - self.offset

    def read(self, dtype: np.typing.DTypeLike, number: int) -> np.ndarray:
        """Returns the next items as a view of the message, possibly unaligned."""
        nbytes = np.dtype(dtype).itemsize * int(number)
        self.offset += nbytes
        return self.body[self.offset - nbytes : self.offset].view(dtype)

    def read_bitmap(self, number: int) -> np.ndarray:
        return np.unpackbits(self.read("u1", -(-number // 8)), count=number).astype(bool)
