"""Multilayer perceptrons: small ones for 2-D points, and others for vectors of any length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hpcfl.models.registry import register

if TYPE_CHECKING:
    from torch import nn

QUICK_START = "quick start"
FIRST = "2"
"""The name of the ReLU after the first hidden layer."""


def _mlp(shape: tuple[int, ...], *widths: int) -> nn.Module:
    """Returns Linear layers with ReLU between them; there is none after the features."""
    from torch import nn

    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers[:-1])


@register(QUICK_START, low_level=FIRST)
def mlp_64(shape: tuple[int, ...], features: int) -> nn.Module:
    """One hidden layer of 64."""
    return _mlp(shape, 64, features)


@register(QUICK_START, low_level=FIRST)
def mlp_256(shape: tuple[int, ...], features: int) -> nn.Module:
    """One hidden layer of 256."""
    return _mlp(shape, 256, features)


@register(QUICK_START, low_level=FIRST)
def mlp_32x3(shape: tuple[int, ...], features: int) -> nn.Module:
    """Three hidden layers of 32."""
    return _mlp(shape, 32, 32, 32, features)


@register("ProtoNorm, Sect. 3.2 (there with d = 2)", low_level=FIRST)
def mlp_taper(shape: tuple[int, ...], features: int) -> nn.Module:
    """Hidden layers of 16, 8 and 4: with its head the five-layer network of the spiral."""
    return _mlp(shape, 16, 8, 4, features)


def _width(shape: tuple[int, ...]) -> int:
    """Returns a width that suits the length of a vector: the next power of two, from 64 to 512."""
    return min(512, max(64, 1 << (math.prod(shape) - 1).bit_length()))


@register("hpcfl", low_level=FIRST)
def mlp_vector(shape: tuple[int, ...], features: int) -> nn.Module:
    """For vectors of any length: two hidden layers, the second half as wide."""
    return _mlp(shape, _width(shape), _width(shape) // 2, features)


@register("hpcfl", low_level=FIRST)
def mlp_vector_wide(shape: tuple[int, ...], features: int) -> nn.Module:
    """For vectors of any length: one hidden layer, twice as wide."""
    return _mlp(shape, 2 * _width(shape), features)


@register("hpcfl", low_level=FIRST)
def mlp_vector_deep(shape: tuple[int, ...], features: int) -> nn.Module:
    """For vectors of any length: three hidden layers, each half as wide as the one before."""
    return _mlp(shape, _width(shape), _width(shape) // 2, _width(shape) // 4, features)
