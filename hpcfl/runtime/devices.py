"""The device of a rank, and the torch settings that make its results depend on the configuration only."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hpcfl.config.schema import RuntimeConfig
from hpcfl.errors import BadInput

if TYPE_CHECKING:
    import torch


def device_for(setting: str, local_rank: int, kind: str, devices: int) -> str:
    """Returns the device of a rank: a node's, of type `kind`, are assigned to its ranks round-robin."""
    if setting == "cpu" or (setting == "auto" and devices == 0):
        return "cpu"
    if devices == 0:
        raise BadInput(f"runtime.device = {setting!r}: this node has no {setting} device that torch sees")
    return f"{kind}:{local_rank % devices}"


def set_up_torch(runtime: RuntimeConfig, local_rank: int, on: str | None = None) -> torch.device:
    """Imports torch, fixes the settings that would change bits, and returns the device.

    `on` overrides runtime.device.
    """
    for library in ("OMP", "MKL", "OPENBLAS"):  # scipy loads its own OpenBLAS later
        os.environ[f"{library}_NUM_THREADS"] = str(runtime.threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # makes cuBLAS deterministic
    # AMX (bfloat16 tiles) crashes on virtual machines that report it without supporting it
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    import torch

    torch.set_num_threads(runtime.threads)
    from hpcfl.utils import accelerator

    setting = on or runtime.device
    device = torch.device(device_for(setting, local_rank, *accelerator.find_accelerators(setting)))
    deterministic = accelerator.has_deterministic_algorithms(device.type)
    use_deterministic_algorithms(deterministic)
    if deterministic:
        torch.backends.cudnn.allow_tf32 = False
    accelerator.select(device)
    return device


def use_deterministic_algorithms(wanted: bool) -> None:
    """Sets torch's flag if it differs: the call imports torch's compiler, half of a rank's start-up."""
    import torch

    if torch.are_deterministic_algorithms_enabled() != wanted:
        torch.use_deterministic_algorithms(wanted)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Runs the block with this number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def free_memory() -> None:
    """Frees the memory of a run that has ended."""
    gc.collect()  # its objects refer to each other
    if "torch" in sys.modules:
        from hpcfl.utils.accelerator import free_cached_memory

        free_cached_memory()


@contextmanager
def preserve_torch_settings() -> Iterator[None]:
    """Runs the block and restores torch's threads, generators and flags, if torch was imported before it."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    threads, deterministic, tf32 = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.allow_tf32,
    )
    with torch.random.fork_rng():
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            use_deterministic_algorithms(deterministic)
            torch.backends.cudnn.allow_tf32 = tf32


def seed_torch(key: int, device: torch.device) -> None:
    """Seeds the generators of CPU and device; `torch.manual_seed` takes 0.3 ms, to format a traceback."""
    import torch

    from hpcfl.utils import accelerator

    torch.default_generator.manual_seed(key)
    accelerator.seed(device, key)
