"""On which device a rank computes, and what makes its arithmetic a function of the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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


def set_up(setting: str, threads: int, local_rank: int) -> torch.device:
    """Loads torch, fixes what would change bits, and returns this rank's device."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is only then the same every time
    import torch

    torch.set_num_threads(threads)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device(device_for(setting, local_rank, count))
    if device.type == "cuda":
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False
    return device
