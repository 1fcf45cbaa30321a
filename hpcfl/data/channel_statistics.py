"""Mean and standard deviation of each channel of the train samples."""

from __future__ import annotations

import numpy as np


class ImageStatistics:
    """Collects uint8 images [B, H, W, C]; sums are whole numbers, so their order does not matter."""

    def __init__(self, channels: int):
        self.pixels = 0
        self.sum_C = np.zeros(channels, dtype=np.int64)
        self.squares_C = np.zeros(channels, dtype=np.int64)

    def add(self, images_BHWC: np.ndarray) -> None:
        """Adds a batch of images."""
        values = images_BHWC.astype(np.uint16)  # 255² fits
        self.pixels += images_BHWC[..., 0].size
        self.sum_C += values.sum((0, 1, 2), dtype=np.int64)
        self.squares_C += (values * values).sum((0, 1, 2), dtype=np.int64)

    @property
    def mean_C(self) -> np.ndarray:
        """The mean of each channel, with values scaled to 0 … 1."""
        mean_C: np.ndarray = self.sum_C / (self.pixels * 255)
        return mean_C

    @property
    def std_C(self) -> np.ndarray:
        """The standard deviation of each channel, scaled likewise; 1 where all values are equal."""
        variance_C = self.squares_C / (self.pixels * 255 * 255) - self.mean_C**2
        return np.where(variance_C > 0, np.sqrt(np.maximum(variance_C, 0)), 1.0)


class ArrayStatistics:
    """Collects other samples [B, C, …], such as sensor windows; each entry of a vector is a channel."""

    def __init__(self, channels: int):
        self.count = 0
        self.mean_C = np.zeros(channels)
        self.squares_C = np.zeros(channels)
        """Sum of squared differences from the mean."""

    def add(self, values_BC: np.ndarray) -> None:
        """Adds a batch; batches are joined by their means, because sums of squares lose small deviations."""
        if not len(values_BC):
            return
        values_BCX = values_BC.reshape(*values_BC.shape[:2], -1).astype(np.float64)
        count = len(values_BCX) * values_BCX.shape[2]
        mean_C = values_BCX.mean((0, 2))
        shift_C, total = mean_C - self.mean_C, self.count + count
        self.squares_C += ((values_BCX - mean_C[:, None]) ** 2).sum((0, 2))
        self.squares_C += shift_C**2 * (self.count * count / total)
        self.mean_C = self.mean_C + shift_C * (count / total)
        self.count = total

    @property
    def std_C(self) -> np.ndarray:
        """The standard deviation of each channel; 1 where all values are equal."""
        return np.where(self.squares_C > 0, np.sqrt(self.squares_C / self.count), 1.0)
