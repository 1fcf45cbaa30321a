"""The settings of a run that aggregation and refinement need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class MethodContext:
    """Sizes, seed and server settings of a run."""

    classes: int
    features: int
    seed: int
    lr: float
    batch_size: int
    device: torch.device
    options: Mapping[str, Any]
    clients: int = 1
    samples: int = 1
    """Training samples of all clients together."""
    mask_KD: Tensor | None = None
    """The dimensions that each class uses; None: all."""
    trace: bool = False
    """Whether to record the pairwise distances of every solver iteration."""
