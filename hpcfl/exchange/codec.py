"""Messages: payloads as bytes. Nothing is pickled, and arrays never pass through Python bytes.

A payload is a bitmap of the declared arrays that it has, and these arrays. An upload is a header (client,
whether it diverged, length) and its payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hpcfl.exchange.payload import Array, Bytes, ClassRows, Payload, Reader, padded

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
        self.arrays = {array.name: array for array in arrays}
        if len(self.arrays) < len(arrays):
            raise ValueError("two arrays of a payload have the same name")

    def encode(self, payload: Payload, room: int = 0) -> np.ndarray:
        """Returns the message of a payload, nothing for an empty one, after `room` free bytes."""
        if not isinstance(payload, Mapping):
            raise TypeError(f"a payload must be a dictionary of arrays by name, not {type(payload).__name__}")
        if not payload:
            return np.zeros(room, dtype=np.uint8)
        if unknown := payload.keys() - self.arrays.keys():
            raise ValueError(f"payload {min(unknown)!r} is not declared")
        parts = [np.packbits([name in payload for name in self.arrays])]
        for name, array in self.arrays.items():
            if name in payload:
                parts += array.parts(payload)
        message = np.zeros(room + sum(padded(part.nbytes) for part in parts), dtype=np.uint8)
        start = room
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
        present = np.unpackbits(reader.read(torch.uint8, (-(-len(self.arrays) // 8),)).numpy())
        for is_present, (name, array) in zip(present.tolist(), self.arrays.items(), strict=False):
            if is_present:
                payload[name] = array.read(reader, payload)
        if present[len(self.arrays) :].any() or reader.offset != message.size:
            raise ValueError("the message does not fit the declared arrays")
        return payload

    def nbytes(self, payload: Payload) -> Bytes:
        """Returns the bytes of a payload's arrays."""
        sizes = [self.arrays[name].nbytes(payload) for name in payload]
        return Bytes(sum(size.counted for size in sizes), sum(size.side for size in sizes))

    def expected_bytes(self, present_K: np.ndarray) -> int:
        """Returns the bytes of a whole payload that count, if these classes are present."""
        return sum(array.expected_bytes(present_K) for array in self.arrays.values())

    def expected_size(self, present_K: np.ndarray) -> int:
        """Returns about the bytes of a whole message, if these classes are present."""
        arrays = [replace(array, counted=True) for array in self.arrays.values()]
        return sum(padded(array.expected_bytes(present_K)) for array in arrays)


def encode_uploads(codec: Codec, uploads: Iterable[ClientUpload]) -> np.ndarray:
    """Returns one message with all uploads of a rank; `uploads` may be a generator that trains."""
    parts: list[np.ndarray] = []
    for upload in uploads:
        message = codec.encode(upload.payload, HEADER.itemsize)
        size = message.size - HEADER.itemsize
        message[: HEADER.itemsize].view(HEADER)[0] = upload.client, upload.diverged, size
        parts.append(message)
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    message, start = np.empty(sum(part.size for part in parts), dtype=np.uint8), 0
    parts.reverse()
    while parts:  # each is freed once it is copied, so that uploads are not in memory twice
        part = parts.pop()
        message[start : start + part.size] = part
        start += part.size
    return message


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
