"""Batches for networks: gathered by index from the shared dataset, normalised on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.config.schema import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.training.augmentation import Augmentation


class SampleSource:
    """The shared dataset and the normalisation of its images on a device."""

    def __init__(self, data: Dataset, settings: DataConfig, device: torch.device):
        self.x, self.y = torch.from_numpy(data.x), torch.from_numpy(data.y)
        self.device, self.is_images = device, data.is_images
        if data.is_images:
            half_C = np.full(data.shape[0], 0.5)
            statistics = (data.mean_C, data.std_C) if settings.normalise == "channel" else (half_C, half_C)
            # (x/255 − μ)/σ, with μ and σ repeated for every pixel, so that an image is one contiguous row
            self.mean_HWC, self.std_HWC = (
                torch.tensor(255 * part_C, dtype=torch.float32, device=device).repeat(*data.shape[1:], 1)
                for part_C in statistics
            )

    def samples(
        self, index_N: np.ndarray, memory_format: torch.memory_format = torch.contiguous_format
    ) -> ClientSamples:
        """Returns the samples with these indices."""
        return ClientSamples(self, torch.from_numpy(index_N), memory_format)


@dataclass(frozen=True)
class ClientSamples:
    """Samples of one client: the rows `index_N` of the shared dataset."""

    source: SampleSource
    index_N: Tensor
    memory_format: torch.memory_format

    def __len__(self) -> int:
        return len(self.index_N)

    @property
    def labels_N(self) -> Tensor:
        return self.source.y[self.index_N].to(self.source.device)

    def batch(self, which_B: np.ndarray, augment: Augmentation | None = None) -> tuple[Tensor, Tensor]:
        """Returns inputs and labels on the device; images are [B, C, H, W], augmented and normalised."""
        source = self.source
        row_B = self.index_N[torch.from_numpy(which_B)]
        x_B, y_B = (part.index_select(0, row_B).to(source.device) for part in (source.x, source.y))
        if not source.is_images:
            return x_B, y_B
        if augment is not None:
            x_B = augment(x_B, row_B.numpy())
        x_BHWC = x_B.to(torch.float32).sub_(source.mean_HWC).div_(source.std_HWC)
        x_BCHW = x_BHWC.permute(0, 3, 1, 2)
        if self.memory_format == torch.contiguous_format:
            # one channel counts as contiguous whatever its strides are: flatten and view reset them
            return x_BCHW.contiguous().flatten().view(x_BCHW.shape), y_B
        return x_BCHW, y_B
