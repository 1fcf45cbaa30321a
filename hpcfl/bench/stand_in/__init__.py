"""A stand-in for an accelerator: it holds CPU tensors, counts what it does, and refuses mixed devices.

`stand_in_devices` adds the device type `standin` to torch for a while. Its tensors compute on the CPU, so
results are those of the CPU's plain step. Where a GPU's host would wait counts as a host sync: reading a
value, an output whose size depends on values, and every copy that is not both `non_blocking` and from or to
pinned memory. What is copied to the host without waiting holds garbage until `synchronize`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

from hpcfl.bench.stand_in import tensor
from hpcfl.bench.stand_in.counts import MEMORY, NAME, Counts, counted, counts
from hpcfl.bench.stand_in.host_memory import pin_memory, synchronise
from hpcfl.bench.stand_in.tensor import StandInTensor, current_device, index_of, run, set_device
from hpcfl.utils import accelerator

__all__ = [
    "NAME",
    "Counts",
    "StandInTensor",
    "counted",
    "counts",
    "is_possible",
    "prepare",
    "stand_in_devices",
]


_devices = 0
_library: Any = None
_own: Any = None


class _Hooks(torch._C._acc.PrivateUse1Hooks if hasattr(torch._C, "_acc") else object):  # type: ignore[misc]
    """What torch's C++ code asks: whether there is such a device now."""

    def is_available(self) -> bool:
        return _devices > 0

    def has_primary_context(self, device: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


def _functions() -> SimpleNamespace:
    """Returns what is to be `torch.standin`, with the functions that `torch.cuda` has too."""
    return SimpleNamespace(
        is_initialized=lambda: True,
        is_available=lambda: _devices > 0,
        _is_in_bad_fork=lambda: False,
        current_device=current_device,
        set_device=set_device,
        device_count=lambda: _devices,
        manual_seed=lambda seed: None,  # its random numbers are those of the CPU's generator
        manual_seed_all=lambda seed: None,
        get_rng_state=lambda device=None: torch.empty(0, dtype=torch.uint8),
        set_rng_state=lambda state, device=None: None,
        get_amp_supported_dtype=lambda: [torch.bfloat16],
        synchronize=lambda device=None: synchronise(index_of(device)),
        empty_cache=lambda: None,
        mem_get_info=lambda device=None: (MEMORY - counts.allocated[index_of(device)], MEMORY),
        max_memory_allocated=lambda device=None: counts.peak[index_of(device)],
        reset_peak_memory_stats=lambda device=None: counts.reset_peak(index_of(device)),
        get_device_properties=lambda device=None: SimpleNamespace(
            name="stand-in", uuid=f"stand-in-{index_of(device)}"
        ),
    )


def is_possible() -> bool:
    """Returns whether this torch has the hook for backends in Python."""
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def prepare() -> None:
    """Makes torch know the type, without a device; autograd learns it only before its first backward pass."""
    global _library, _own
    if _library is None:
        backend_registration._setup_privateuseone_for_python_backend(NAME, _functions(), _Hooks())
        _library = torch.library.Library("_", "IMPL")
        _library.fallback(lambda op, *args, **kwargs: run(op, args, kwargs), "PrivateUse1")
        silu_backward = torch.ops.aten.silu_backward.default  # torch would do it in other steps than the CPU
        _own = torch.library.Library("aten", "IMPL")
        _own.impl("silu_backward", lambda *args: run(silu_backward, args, {}), "PrivateUse1")


@contextmanager
def stand_in_devices(number: int = 2, float64: bool = True) -> Iterator[Counts]:
    """Within it there are so many devices of type `standin`; gives the counts of what they do.

    Without float64 they refuse to compute with it, as Apple's do.
    """
    global _devices
    prepare()
    pin, _devices, tensor.has_float64 = Tensor.pin_memory, number, float64
    accelerator.has_float64.cache_clear()
    Tensor.pin_memory = pin_memory  # type: ignore[method-assign,assignment]
    try:
        yield counts
    finally:
        Tensor.pin_memory, _devices = pin, 0  # type: ignore[method-assign]
        tensor.has_float64 = True
        accelerator.has_float64.cache_clear()
        set_device(0)
