"""On which device a rank computes, and what makes its arithmetic a function of the configuration."""

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


def device_for(setting: str, local_rank: int, cuda_devices: int) -> str:
    """Returns the device of a rank: ranks of a node share its GPUs in turn."""
    if setting == "cpu" or (setting == "auto" and cuda_devices == 0):
        return "cpu"
    if cuda_devices == 0:
        raise BadInput("runtime.device = 'cuda': this node has no CUDA device")
    return f"cuda:{local_rank % cuda_devices}"


def set_up_torch(runtime: RuntimeConfig, local_rank: int, on: str | None = None) -> torch.device:
    """Loads torch, fixes what would change bits, and returns this rank's device, or the one given."""
    for library in ("OMP", "MKL", "OPENBLAS"):  # scipy brings its own OpenBLAS, loaded after this
        os.environ[f"{library}_NUM_THREADS"] = str(runtime.threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is only then the same every time
    # bfloat16 by tiles (AMX) crashes on virtual machines that only claim to have them
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    import torch

    torch.set_num_threads(runtime.threads)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device(device_for(on or runtime.device, local_rank, count))
    torch.use_deterministic_algorithms(device.type == "cuda")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.allow_tf32 = False
    return device


def free_memory() -> None:
    """Gives back the memory of a run that is over."""
    gc.collect()  # its parts know each other
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextmanager
def torch_settings_kept() -> Iterator[None]:
    """Runs the block; torch, if it was there before, then has its threads, generators and flags again."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    threads, strict, tf32 = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.allow_tf32,
    )
    with torch.random.fork_rng():
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict)
            torch.backends.cudnn.allow_tf32 = tf32


def seed_torch(key: int, device: torch.device) -> None:
    """Seeds what draws on a device; torch's own call formats a traceback each time, for 0.3 ms."""
    import torch

    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.manual_seed(key)
