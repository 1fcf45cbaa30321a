"""What a dataset is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """All samples, train part first, then test part; clients hold indices into it."""

    x: np.ndarray
    """Points [N, F], float32; or images [N, H, W, C], uint8, mapped from their file."""
    y: np.ndarray
    """Labels 0 … K − 1, [N], int64."""
    names: tuple[str, ...]
    """What each class is called."""
    train: int
    """Samples of the train part."""
    checksum: str
    """Of everything, as it was written."""
    checksum_images: str = ""
    file: Path | None = None
    mean_C: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Of the train part's pixels, per channel, where a pixel is 0 … 1."""
    std_C: np.ndarray = field(default_factory=lambda: np.zeros(0))
    writer: np.ndarray | None = None
    """Who made each sample, 0 … W − 1, [N]."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from."""

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def is_images(self) -> bool:
        return self.x.dtype == np.uint8

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample as networks take it: channels first."""
        size = self.x.shape[1:]
        return (size[2], size[0], size[1]) if self.is_images else size
