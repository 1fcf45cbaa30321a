"""Messages: payloads as bytes. Nothing is pickled, and arrays are copied once, never through Python bytes.

A payload is a bit mask of the declared arrays that it has, and these arrays. An upload is a header (client,
whether it diverged, length) and its payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hpcfl.exchange.payload import ALIGN, Array, Bytes, ClassRows, Payload, Reader, padded

HEADER = np.dtype([("client", "<i4"), ("diverged", "<i4"), ("nbytes", "<i8")])
EMPTY = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True)
class ClientUpload:
    """What one client uploads in a round; the payload of a diverged client is empty."""

    client: int
    diverged: bool
    payload: Payload


class Codec:
    """The message format of the payloads in one direction."""

    def __init__(self, arrays: Sequence[Array]):
        if len(arrays) > 64:
            raise ValueError(f"{len(arrays)} arrays are declared, the most are 64: join small ones")
        self.arrays = {array.name: array for array in arrays}

    def encode(self, payload: Payload) -> np.ndarray:
        """Returns the message of a payload; nothing for an empty one."""
        if not payload:
            return EMPTY
        if unknown := payload.keys() - self.arrays.keys():
            raise ValueError(f"payload {min(unknown)!r} is not declared")
        present = [name in payload for name in self.arrays]
        parts = [np.array([sum(1 << bit for bit, there in enumerate(present) if there)], dtype="<u8")]
        for name, array in self.arrays.items():
            if name in payload:
                parts += array.parts(payload)
        message = np.zeros(sum(padded(part.nbytes) for part in parts), dtype=np.uint8)
        start = 0
        for part in parts:
            message[start : start + part.nbytes].view(part.dtype).reshape(part.shape)[...] = part
            start += padded(part.nbytes)
        return message

    def decode(self, message: np.ndarray) -> Payload:
        """Returns the payload of a message; raises ValueError if it is none."""
        if not message.size:
            return {}
        reader = Reader(message)
        payload: dict[str, Tensor | ClassRows] = {}
        if message.size < ALIGN:
            raise ValueError("the message is too short")
        mask = int(message[:ALIGN].view("<u8")[0])
        reader.offset = ALIGN
        for bit, (name, array) in enumerate(self.arrays.items()):
            if mask >> bit & 1:
                payload[name] = array.read(reader, payload)
        if mask >> len(self.arrays) or reader.offset != message.size:
            raise ValueError("the message does not fit the declared arrays")
        return payload

    def nbytes(self, payload: Payload) -> Bytes:
        """Returns the bytes of a payload's arrays."""
        sizes = [self.arrays[name].nbytes(payload) for name in payload]
        return Bytes(sum(size.counted for size in sizes), sum(size.side for size in sizes))

    def expected_bytes(self, present_K: np.ndarray) -> int:
        """Returns the bytes of a whole payload that count, if these classes are present."""
        return sum(array.expected_bytes(present_K) for array in self.arrays.values())


def encode_uploads(codec: Codec, uploads: Iterable[ClientUpload]) -> np.ndarray:
    """Returns one message with all uploads of a rank; `uploads` may be a generator that trains."""
    parts: list[np.ndarray] = []
    for upload in uploads:
        message = codec.encode(upload.payload)
        header = np.array([(upload.client, upload.diverged, message.size)], dtype=HEADER)
        parts += [header.view(np.uint8), message]
    return np.concatenate(parts) if parts else EMPTY


def decode_uploads(codec: Codec, messages: Iterable[np.ndarray]) -> list[ClientUpload]:
    """Returns the uploads of all ranks in client order."""
    uploads = [upload for message in messages for upload in _uploads(codec, message)]
    return sorted(uploads, key=lambda upload: upload.client)


def _uploads(codec: Codec, message: np.ndarray) -> Iterator[ClientUpload]:
    start = 0
    while start < message.size:
        header = message[start : start + HEADER.itemsize].view(HEADER)[0]
        start, nbytes = start + HEADER.itemsize, int(header["nbytes"])
        if not 0 <= nbytes <= message.size - start:
            raise ValueError("the message ends within an upload")
        payload = codec.decode(message[start : start + nbytes])
        start += nbytes
        yield ClientUpload(int(header["client"]), bool(header["diverged"]), payload)
