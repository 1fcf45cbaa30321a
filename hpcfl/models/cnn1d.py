"""One-dimensional CNNs for series and sensor windows [channels, steps], such as 9 × 128."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcfl.models.registry import register

if TYPE_CHECKING:
    from torch import nn

OURS = "hpcfl"
POSITIONS = 8
"""Steps that are left before the last layer, for series of any length."""


def _cnn1d(shape: tuple[int, ...], features: int, *widths: int) -> nn.Module:
    """Returns convolutions of 5 steps with ReLU, each followed by pooling to half the length."""
    from torch import nn

    # further axes count as steps; a vector is a series of one channel
    layers: list[nn.Module] = [nn.Flatten(2) if len(shape) > 1 else nn.Unflatten(1, (1, shape[0]))]
    channels = shape[0] if len(shape) > 1 else 1
    for width in widths:
        layers += [
            nn.Conv1d(channels, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2, ceil_mode=True),
        ]
        channels = width
    layers += [nn.AdaptiveAvgPool1d(POSITIONS), nn.Flatten(), nn.Linear(channels * POSITIONS, features)]
    return nn.Sequential(*layers)


@register(OURS, low_level="3")
def cnn1d(shape: tuple[int, ...], features: int) -> nn.Module:
    """1-D CNN for series: two convolutions, 32 and 64 wide."""
    return _cnn1d(shape, features, 32, 64)


@register(OURS, low_level="3")
def cnn1d_wide(shape: tuple[int, ...], features: int) -> nn.Module:
    """1-D CNN for series: two convolutions, 64 and 128 wide."""
    return _cnn1d(shape, features, 64, 128)


@register(OURS, low_level="3")
def cnn1d_deep(shape: tuple[int, ...], features: int) -> nn.Module:
    """1-D CNN for series: three convolutions, 32, 32 and 64 wide."""
    return _cnn1d(shape, features, 32, 32, 64)
