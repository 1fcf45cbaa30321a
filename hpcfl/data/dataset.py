"""The dataset that all clients share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """All samples: first the train samples, then the test samples. Clients hold indices into it."""

    x: np.ndarray
    """Images [N, H, W, C], uint8; or other samples [N, …]: float32, or int32 for token numbers.

    A memory map of the prepared file, if there is one."""
    y: np.ndarray
    """Labels 0 … K − 1, [N], int64."""
    class_names: tuple[str, ...]
    """Name of each class."""
    num_train: int
    """Number of train samples."""
    checksum: str
    """Of the whole content, as stored in the prepared file."""
    checksum_images: str = ""
    file: Path | None = None
    """The prepared file; None: generated data."""
    mean_C: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Mean of each channel over the train samples, with pixels scaled to 0 … 1; `std_C` likewise."""
    std_C: np.ndarray = field(default_factory=lambda: np.zeros(0))
    writer_ids: np.ndarray | None = None
    """Writer of each sample, 0 … W − 1, [N]; None: unknown."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Source files, how they were prepared, preparation date and package versions."""

    @property
    def original(self) -> str:
        """Name of the known dataset that was prepared under a name of its own; empty: none."""
        return str(self.provenance.get("original", ""))

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def is_images(self) -> bool:
        return self.x.dtype == np.uint8

    @property
    def input_type(self) -> str:
        """Type of what networks take."""
        return "int32" if self.x.dtype == np.int32 else "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample as networks take it: channels first."""
        size = self.x.shape[1:]
        return (size[2], size[0], size[1]) if self.is_images else size
