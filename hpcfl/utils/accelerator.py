"""What the accelerator of a rank can do: the only module that asks torch for it.

A type of device is a name that torch knows: `cuda` (NVIDIA, and AMD by ROCm), `xpu` (Intel), `mps` (Apple)
and more. torch has the functions of a type in `torch.<type>`; what a type lacks is passed over here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from hpcfl.errors import BadInput

USUAL = ("cuda", "xpu", "mps")
"""Device types that are looked for where torch cannot name its accelerator: before torch 2.6."""


def _functions(kind: str) -> Any:
    """Returns the functions of a device type, such as torch.cuda; None if torch has none."""
    return getattr(torch, kind, None)


def _call(kind: str, function: str, *arguments: Any) -> Any:
    """Calls a function of a device type; returns None if the type lacks it."""
    found = getattr(_functions(kind), function, None)
    return None if found is None else found(*arguments)


def find_accelerators(setting: str) -> tuple[str, int]:
    """Returns the device type that runtime.device asks for and the number of such devices here.

    `auto` is the accelerator that torch finds; without one it is the CPU, which counts as no device.
    """
    if setting != "auto":
        return setting, count(setting)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        kinds = [accelerator.current_accelerator().type] if accelerator.is_available() else []
    else:
        kinds = [kind for kind in USUAL if count(kind)]
    return (kinds[0], count(kinds[0])) if kinds else ("cpu", 0)


def count(kind: str) -> int:
    """Returns the number of devices of a type that this process sees; raises BadInput for an unknown type."""
    if kind == "cpu":
        return 0
    try:
        torch.device(kind)
    except RuntimeError:
        raise BadInput(f"runtime.device = {kind!r}: this torch knows no such type of device") from None
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return int(_call(kind, "device_count") or 0) if _call(kind, "is_available") else 0


def select(device: torch.device) -> None:
    """Makes a device the current one of this process."""
    _call(device.type, "set_device", device)


def synchronise(device: torch.device) -> None:
    """Waits until the device has finished its work."""
    if device.type == "mps":  # there is one, and its function takes no argument
        torch.mps.synchronize()
    else:
        _call(device.type, "synchronize", device)


def seed(device: torch.device, key: int) -> None:
    """Seeds the random numbers of the device."""
    _call(device.type, "manual_seed", key)


def free_cached_memory() -> None:
    """Returns memory that torch keeps for later to every accelerator in use."""
    kind, number = find_accelerators("auto")
    if number:
        _call(kind, "empty_cache")


def identity(device: torch.device) -> str:
    """Returns an identifier of the device, unique on its node: its UUID if it has one, or `cpu`."""
    if device.type == "cpu":
        return "cpu"
    return str(getattr(_call(device.type, "get_device_properties", device), "uuid", device))


def name(device: torch.device) -> str:
    """Returns the name of the product."""
    return str(getattr(_call(device.type, "get_device_properties", device), "name", device.type))


def free_memory(device: torch.device) -> int:
    """Returns the free bytes of the device; 0 if torch cannot say."""
    if device.type == "mps":
        most, used = _call("mps", "recommended_max_memory"), _call("mps", "driver_allocated_memory")
        return max(0, int(most - used)) if most is not None and used is not None else 0
    free, _ = _call(device.type, "mem_get_info", device) or (0, 0)
    return int(free)


def peak_memory(device: torch.device) -> int | None:
    """Returns the most bytes that torch has had in use on the device; None if torch cannot say."""
    peak = _call(device.type, "max_memory_allocated", device)
    return None if peak is None else int(peak)


def reset_peak_memory(device: torch.device) -> None:
    """Lets `peak_memory` begin again."""
    _call(device.type, "reset_peak_memory_stats", device)


@cache
def has_float64(device: torch.device) -> bool:
    """Returns whether the device computes in float64; Apple's and some of Intel's do not."""
    if device.type == "cpu":
        return True
    try:
        one = torch.ones((), dtype=torch.float64, device=device)
        return float(one + one) == 2.0
    except (RuntimeError, TypeError):
        return False


def with_float64(device: torch.device) -> torch.device:
    """Returns where what needs float64 is computed: the device, or the CPU if it has none."""
    return device if has_float64(device) else torch.device("cpu")


def in_float64(value: Tensor) -> Tensor:
    """Returns a tensor in float64: on its device, or on the CPU if that has none."""
    return value.to(with_float64(value.device)).double()


def has_graphs(kind: str) -> bool:
    """Returns whether a training step can be recorded and replayed (CUDA graphs)."""
    return kind == "cuda" and hasattr(torch.cuda, "CUDAGraph")


def has_deterministic_algorithms(kind: str) -> bool:
    """Returns whether torch must be told to use deterministic algorithms: cuBLAS and cuDNN have others."""
    return kind == "cuda"


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """Returns a tensor of the host on a device, without waiting: copied from pinned memory."""
    if device.type in ("cpu", "mps") or value.device.type != "cpu":
        return value.to(device)
    return value.pin_memory().to(device, non_blocking=True)


def to_host(*values: Tensor) -> list[Tensor]:
    """Returns tensors on the host; waits for the device once, however many they are."""
    copies = [value.detach().to("cpu", non_blocking=True) for value in values]
    devices = {value.device for value in values if value.device.type != "cpu"}
    for device in devices:
        synchronise(device)
    return copies
