"""The tensors of payloads: on a device or on the host, finite or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from hpcfl.exchange.payload import ClassRows, Payload
from hpcfl.utils.accelerator import to_device


def present_rows(rows: Sequence[ClassRows]) -> tuple[Tensor, Tensor]:
    """Returns the vectors of all present classes, one client after the other, and their classes."""
    value_RD = torch.cat([each.value_KD[each.present_K] for each in rows])
    return value_RD, torch.cat([each.present_K.nonzero()[:, 0] for each in rows])


def is_finite(payload: Payload) -> bool:
    """Returns whether every number of a payload is finite."""
    values = (value.value_KD if isinstance(value, ClassRows) else value for value in payload.values())
    return all(bool(value.isfinite().all()) for value in values)


def copy_to(payload: Payload, device: torch.device) -> Payload:
    """Returns a copy of a payload on a device."""
    if device.type == "cpu":
        return replace_tensors(payload, (each.clone() for each in tensors(payload)))
    return replace_tensors(payload, (to_device(each, device) for each in tensors(payload)))


def tensors(payload: Payload) -> list[Tensor]:
    """Returns all tensors of a payload, two for class rows."""
    parts = (
        (value.value_KD, value.present_K) if isinstance(value, ClassRows) else (value,)
        for value in payload.values()
    )
    return [each for part in parts for each in part]


def replace_tensors(payload: Payload, new: Iterable[Tensor]) -> Payload:
    """Returns a payload with other tensors, in the order of `tensors`."""
    rest = iter(new)
    return {
        name: ClassRows(next(rest), next(rest)) if isinstance(value, ClassRows) else next(rest)
        for name, value in payload.items()
    }
