"""How a rank uses the free memory of its accelerator: for the data, and for states of clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hpcfl.utils import accelerator


@dataclass(frozen=True)
class DeviceMemory:
    """Whether a rank keeps the data on its device, and the bytes for states of clients there."""

    holds_data: bool = False
    cache: int = 0


def divide_memory(device: torch.device, share: float, ranks: int, data: int) -> DeviceMemory:
    """Returns the use of a share of the free memory by one of `ranks` that share a device.

    Data that fit come first; their bytes are `data`. The CPU has no memory of its own.
    """
    if device.type == "cpu":
        return DeviceMemory()
    limit = int(share * accelerator.free_memory(device) / max(1, ranks))
    return DeviceMemory(True, limit - data) if data <= limit else DeviceMemory(False, limit)
