"""Payloads: the named arrays that go to the clients or to the server, and their declarations.

An algorithm declares each array once, with its kind: `Dense` has a fixed shape, `Rows` sends the rows of the
classes that are present, `Shaped` carries its shape. Messages, byte counts and `hpcfl plan` follow from that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.utils.accelerator import to_device


@dataclass(frozen=True, eq=False)
class ClassRows:
    """A vector per class; where `present_K` is False the row is zero."""

    value_KD: Tensor
    present_K: Tensor

    @classmethod
    def none(cls, classes: int, features: int) -> ClassRows:
        """Returns rows without any present class."""
        return cls(torch.zeros(classes, features), torch.zeros(classes, dtype=torch.bool))

    def equals(self, other: ClassRows) -> bool:
        """Returns whether both are equal bit for bit."""
        return torch.equal(self.present_K, other.present_K) and torch.equal(self.value_KD, other.value_KD)

    @property
    def finite(self) -> bool:
        return bool(self.value_KD.isfinite().all())

    def to(self, device: torch.device) -> ClassRows:
        return ClassRows(to_device(self.value_KD, device), to_device(self.present_K, device))


Payload = Mapping[str, Tensor | ClassRows]
"""Arrays by name; an empty payload sends nothing."""


@dataclass(frozen=True)
class Dense:
    """An array of a fixed shape."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    counted: bool = True
    """Whether its bytes are those that papers count; if not, they count as /round/bytes_side."""

    def parts(self, payload: Payload) -> list[np.ndarray]:
        """Returns the arrays that are sent."""
        value = tensor(payload, self.name)
        _check(self.name, value, self.dtype, self.shape)
        return [value.detach().cpu().numpy()]

    def read(self, reader: Reader, payload: Payload) -> Tensor:
        return reader.read(self.dtype, self.shape)

    def nbytes(self, payload: Payload) -> Bytes:
        size = self.dtype.itemsize * math.prod(self.shape)
        return Bytes(size, 0) if self.counted else Bytes(0, size)

    def expected_bytes(self, present_K: np.ndarray) -> int:
        """Returns the bytes that count, if these classes are present."""
        return self.nbytes({}).counted


@dataclass(frozen=True, eq=False)
class Rows:
    """A row per present class, and a bitmap of the present classes."""

    name: str
    classes: int
    width: int
    dtype: torch.dtype = torch.float32
    counted: bool = True
    mask_KD: np.ndarray | None = None
    """The entries of each class's row that are sent; None: all. The others are zero."""
    present_as: str | None = None
    """Another array with the same present classes, whose bitmap serves this one too."""
    all_classes: bool = False
    """Whether all classes are present even if no client has them; for `hpcfl plan`."""

    def parts(self, payload: Payload) -> list[np.ndarray]:
        rows = class_rows(payload, self.name)
        _check(self.name, rows.value_KD, self.dtype, (self.classes, self.width))
        present_K = rows.present_K.cpu().numpy()
        value_RD = rows.value_KD.detach().cpu().numpy()[present_K]
        sent = value_RD if self.mask_KD is None else value_RD[self.mask_KD[present_K]]
        return [sent] if self.present_as else [np.packbits(present_K), sent]

    def read(self, reader: Reader, payload: Payload) -> ClassRows:
        if self.present_as:
            if self.present_as not in payload:
                raise ValueError(f"the message has {self.name!r} without {self.present_as!r}")
            present_K = class_rows(payload, self.present_as).present_K
        else:
            bits = reader.read(torch.uint8, (self.bytes_of_bitmap,)).numpy()
            present_K = torch.from_numpy(np.unpackbits(bits, count=self.classes).astype(bool))
        value_KD = torch.zeros(self.classes, self.width, dtype=self.dtype)
        if self.mask_KD is None:
            value_KD[present_K] = reader.read(self.dtype, (int(present_K.sum()), self.width))
        else:
            sent_KD = torch.from_numpy(self.mask_KD) & present_K[:, None]
            value_KD[sent_KD] = reader.read(self.dtype, (int(sent_KD.sum()),))
        return ClassRows(value_KD, present_K)

    def nbytes(self, payload: Payload) -> Bytes:
        size = self._bytes_of_rows(class_rows(payload, self.name).present_K.cpu().numpy())
        bitmap = 0 if self.present_as else self.bytes_of_bitmap
        return Bytes(size, bitmap) if self.counted else Bytes(0, size + bitmap)

    def expected_bytes(self, present_K: np.ndarray) -> int:
        present_K = present_K | self.all_classes
        return self._bytes_of_rows(present_K) if self.counted else 0

    @property
    def bytes_of_bitmap(self) -> int:
        return -(-self.classes // 8)

    def _bytes_of_rows(self, present_K: np.ndarray) -> int:
        entries = present_K.sum() * self.width if self.mask_KD is None else self.mask_KD[present_K].sum()
        return int(entries) * self.dtype.itemsize


@dataclass(frozen=True)
class Shaped:
    """An array that carries its shape, which may change from round to round."""

    name: str
    dims: int
    max_numbers: int
    """The most numbers that it may have; for `hpcfl plan`."""
    dtype: torch.dtype = torch.float32
    counted: bool = True

    def parts(self, payload: Payload) -> list[np.ndarray]:
        value = tensor(payload, self.name)
        _check(self.name, value, self.dtype, None)
        if value.ndim != self.dims:
            raise ValueError(f"payload {self.name!r} has {value.ndim} dimensions, declared are {self.dims}")
        return [np.array(value.shape, dtype=np.int64), value.detach().cpu().numpy()]

    def read(self, reader: Reader, payload: Payload) -> Tensor:
        shape = tuple(reader.read(torch.int64, (self.dims,)).tolist())
        return reader.read(self.dtype, shape)

    def nbytes(self, payload: Payload) -> Bytes:
        size, shape = tensor(payload, self.name).numel() * self.dtype.itemsize, 8 * self.dims
        return Bytes(size, shape) if self.counted else Bytes(0, size + shape)

    def expected_bytes(self, present_K: np.ndarray) -> int:
        return self.max_numbers * self.dtype.itemsize if self.counted else 0


Array = Dense | Rows | Shaped


@dataclass(frozen=True)
class Bytes:
    """Bytes that papers count, and those beside them (bitmaps, sample counts, shapes)."""

    counted: int
    side: int


class Reader:
    """Reads the arrays of a message one after the other, as views; each starts at a multiple of ALIGN."""

    def __init__(self, message: np.ndarray):
        self.message, self.offset = message, 0

    def read(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """Returns the next array; it shares the memory of the message."""
        start, size = self.offset, dtype.itemsize * math.prod(shape)
        if min(shape, default=0) < 0 or start + size > self.message.size:
            raise ValueError("the message ends within an array")
        if not size and math.prod(max(n, 1) for n in shape) >= 2**60:
            raise ValueError(f"the message has an empty array of shape {shape}")
        self.offset += padded(size)
        return torch.from_numpy(self.message[start : start + size]).view(dtype).view(shape)


ALIGN = 8
"""Arrays of a message start at multiples of this number of bytes."""


def padded(nbytes: int) -> int:
    """Returns the next multiple of ALIGN."""
    return -(-nbytes // ALIGN) * ALIGN


def _check(name: str, value: Tensor, dtype: torch.dtype, shape: tuple[int, ...] | None) -> None:
    """Raises ValueError if an array is not as it was declared; `shape` None: any."""
    found, shape = tuple(value.shape), tuple(value.shape) if shape is None else shape
    if found != shape or value.dtype != dtype:
        raise ValueError(
            f"payload {name!r} is {value.dtype} of shape {found}, declared is {dtype} of shape {shape}"
        )


def tensor(payload: Payload, name: str) -> Tensor:
    """Returns a tensor of a payload."""
    value = payload[name]
    assert isinstance(value, Tensor), f"payload {name!r} must be a tensor"
    return value


def class_rows(payload: Payload, name: str) -> ClassRows:
    """Returns class rows of a payload."""
    value = payload[name]
    assert isinstance(value, ClassRows), f"payload {name!r} must be class rows"
    return value
