"""What the parts of a method know of their run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class MethodContext:
    classes: int
    features: int
    seed: int
    lr: float
    batch_size: int
    device: torch.device
    options: Mapping[str, Any]
    clients: int = 1
    samples: int = 1
    """Training samples of all clients."""
    mask_KD: Tensor | None = None
    """The dimensions that each class owns; None: all."""
    trace: bool = False
    """Keep the distances of every iteration."""
