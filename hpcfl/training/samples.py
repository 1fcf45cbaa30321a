"""Batches for networks: gathered by index from the shared dataset, normalised on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.config.schema import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.training.augmentation import Augmentation
from hpcfl.utils.accelerator import to_device

Batch = tuple[Tensor, Tensor]
"""Inputs or features, and labels or pseudo-labels."""


class SampleSource:
    """The shared dataset and the normalisation of its samples on a device."""

    def __init__(self, data: Dataset, settings: DataConfig, device: torch.device, on_device: bool = False):
        """With `on_device` the device holds all samples; else each batch is gathered on the host."""
        kept_on = device if on_device else torch.device("cpu")
        self.host_x, self.host_y = torch.from_numpy(data.x), torch.from_numpy(data.y)
        self.x, self.y = self.host_x.to(kept_on), self.host_y.to(kept_on)
        self.device, self.is_images = device, data.is_images
        mean_C, std_C = _statistics(data, settings)
        self.mean: Tensor | None = None
        if data.is_images:
            # (x/255 − μ)/σ, with μ and σ repeated for every pixel, so that an image is one contiguous row
            self.mean_HWC, self.std_HWC = (
                torch.tensor(255 * part_C, dtype=torch.float32, device=device).repeat(*data.shape[1:], 1)
                for part_C in (mean_C, std_C)
            )
        elif data.file is not None and data.input_type == "float32" and settings.normalise != "none":
            shape = (-1, *(1 for _ in data.shape[1:]))
            self.mean, self.std = (
                torch.tensor(part_C, dtype=torch.float32, device=device).view(shape)
                for part_C in (mean_C, std_C)
            )

    def samples(
        self, index_N: np.ndarray, memory_format: torch.memory_format = torch.contiguous_format
    ) -> ClientSamples:
        """Returns the samples with these indices."""
        return ClientSamples(self, torch.from_numpy(index_N), memory_format)


def _statistics(data: Dataset, settings: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the deviation of each channel by which samples are normalised."""
    if settings.normalise == "channel":
        return data.mean_C, data.std_C
    half_C = np.full(data.shape[0], 0.5)
    return (half_C, half_C) if settings.normalise == "half" else (0 * half_C, 2 * half_C)


@dataclass(frozen=True)
class ClientSamples:
    """Samples of one client: the rows `index_N` of the shared dataset."""

    source: SampleSource
    index_N: Tensor
    memory_format: torch.memory_format

    def __len__(self) -> int:
        return len(self.index_N)

    @property
    def host_labels_N(self) -> Tensor:
        return self.source.host_y[self.index_N]

    @property
    def labels_N(self) -> Tensor:
        return to_device(self.host_labels_N, self.source.device)

    def batch(self, which_B: np.ndarray, augment: Augmentation | None = None) -> Batch:
        """Returns inputs and labels on the device, normalised; images are [B, C, H, W] and augmented."""
        return next(self.batches([which_B], augment))

    def batches(self, parts: Sequence[np.ndarray], augment: Augmentation | None = None) -> Iterator[Batch]:
        """Yields `batch` of each part; the numbers of all samples go to the device in one copy.

        Nothing here waits for the device: the host prepares a batch while the device computes with another.
        """
        source = self.source
        row_N = self.index_N[torch.from_numpy(np.concatenate(parts))]
        kept_N = to_device(row_N, source.y.device)
        sizes = [len(part) for part in parts]
        for row_B, kept_B in zip(row_N.split(sizes), kept_N.split(sizes), strict=True):
            y_B = to_device(source.y.index_select(0, kept_B), source.device)
            if augment is not None and augment.on_host:
                x_B = to_device(augment(source.host_x.index_select(0, row_B), row_B.numpy()), source.device)
            else:
                x_B = to_device(source.x.index_select(0, kept_B), source.device)
                x_B = x_B if augment is None else augment(x_B, row_B.numpy())
            yield (self._images(x_B) if source.is_images else self._others(x_B)), y_B

    def _others(self, x_B: Tensor) -> Tensor:
        """Returns samples that are no images, normalised."""
        if self.source.mean is not None:
            x_B = x_B.sub_(self.source.mean).div_(self.source.std)  # in place: a batch is a copy
        return x_B.contiguous(memory_format=self.memory_format) if x_B.dim() == 4 else x_B

    def _images(self, x_B: Tensor) -> Tensor:
        """Returns normalised images, [B, C, H, W]."""
        x_BHWC = x_B.to(torch.float32).sub_(self.source.mean_HWC).div_(self.source.std_HWC)
        x_BCHW = x_BHWC.permute(0, 3, 1, 2)
        if self.memory_format == torch.contiguous_format:
            # one channel counts as contiguous whatever its strides are: flatten and view reset them
            return x_BCHW.contiguous().flatten().view(x_BCHW.shape)
        return x_BCHW
