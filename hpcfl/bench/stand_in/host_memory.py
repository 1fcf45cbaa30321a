"""Copies between the host and a stand-in device, and pinned memory."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from hpcfl.bench.stand_in.counts import NAME, counts

_pending: dict[int, list[tuple[Tensor, Tensor]]] = {}
"""By device: host tensors that are not filled yet, and what they will hold."""
_pinned: set[int] = set()
"""The addresses of pinned host memory."""


def fill_later(into: Tensor, value: Tensor, device: int) -> None:
    """Fills a host tensor when the device is waited for."""
    _pending.setdefault(device, []).append((into, value))


def to_host(new: Tensor, later: bool, device: int) -> Tensor:
    """Returns the copy on the host; without waiting it is filled by `synchronise`."""
    counts.bytes_out += new.nbytes
    if not later:
        counts.wait("copy to the host")
        return new
    into = torch.empty_like(new)
    into.view(torch.uint8).fill_(0xA5) if into.dim() and into.is_contiguous() else into.fill_(1)
    fill_later(into, new, device)
    return into


def from_host(source: Tensor, later: bool) -> None:
    counts.bytes_in += source.nbytes
    if source.device.type == NAME:  # from another device
        counts.wait("copy between devices")
    elif not (later and is_pinned(source)):
        counts.wait("copy from the host")


def is_pinned(host: Tensor) -> bool:
    return host.untyped_storage().data_ptr() in _pinned


def synchronise(device: int) -> None:
    """Waits for a device: what was copied from it without waiting is there."""
    counts.wait("synchronize")
    for into, value in _pending.pop(device, []):
        into.copy_(value)


def pin_memory(host: Tensor, device: object = None) -> Tensor:
    """Returns a copy that counts as pinned: what `Tensor.pin_memory` does while a stand-in is registered."""
    made = host.clone(memory_format=torch.contiguous_format)
    address = made.untyped_storage().data_ptr()
    _pinned.add(address)
    weakref.finalize(made, _pinned.discard, address).atexit = False
    return made
