"""The plain convolutional networks of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcfl.models.registry import register

if TYPE_CHECKING:
    from torch import nn

TABLE_9 = "FedTGP, Table 9 (HtCNN8)"
FIRST, SECOND = "2", "5"
"""Names of the layers that end the first and the second convolution with its pooling and ReLU."""


def _cnn(
    shape: tuple[int, ...],
    features: int,
    convolutions: Sequence[tuple[int, int]] = ((5, 32),),
    hidden: Sequence[int] = (),
    dropout: float = 0.0,
) -> nn.Module:
    """Returns unpadded convolutions (kernel, channels), each with ReLU and 2×2 max pooling, then Linear
    layers with ReLU; the last one gives the features.
    """
    from torch import nn

    layers: list[nn.Module] = []
    inputs, (height, width) = shape[0], shape[1:]
    for number, (kernel, channels) in enumerate(convolutions, 1):
        layers.append(nn.Conv2d(inputs, channels, kernel))
        if dropout and number == len(convolutions):
            layers.append(nn.Dropout2d(dropout))
        layers += [
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
        ]  # pooling first: same bits, less work
        inputs, height, width = channels, (height - kernel + 1) // 2, (width - kernel + 1) // 2
        if min(height, width) < 1:
            raise ValueError("these are too small for its convolutions")
    layers.append(nn.Flatten())
    inputs *= height * width
    for outputs in (*hidden, features):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
        inputs = outputs
    return nn.Sequential(*layers)


TWO_CONVOLUTIONS = ((5, 32), (5, 64))


@register("FedTGP, FedORGP (4-layer CNN)", images=True, low_level=SECOND)
def cnn(shape: tuple[int, ...], features: int) -> nn.Module:
    """Two 5×5 convolutions (32, 64), a fully connected layer: with its head the 4-layer CNN."""
    return _cnn(shape, features, TWO_CONVOLUTIONS)


@register("FedTGP, FedORGP (4-layer CNN)", images=True, published_form_of="cnn", low_level="net.5")
def cnn_published(shape: tuple[int, ...], features: int) -> nn.Module:
    """cnn whose fully connected layer is 512 wide, pooled to d."""
    from hpcfl.models.extractor import Extractor

    return Extractor(_cnn(shape, 512, TWO_CONVOLUTIONS), features)


@register("FedSAP, FedProto", images=True, dropout=0.5, low_level="6")
def cnn_femnist(shape: tuple[int, ...], features: int) -> nn.Module:
    """3×3 10, 5×5 20, a fully connected layer, dropout: FedSAP's for FEMNIST (d = 50, 128×128)."""
    return _cnn(shape, features, ((3, 10), (5, 20)), dropout=0.5)


@register(TABLE_9, images=True, low_level=FIRST)
def cnn1(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32; d."""
    return _cnn(shape, features)


@register(TABLE_9, images=True, low_level=SECOND)
def cnn2(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32, 5×5 64; d."""
    return _cnn(shape, features, TWO_CONVOLUTIONS)


@register(TABLE_9, images=True, low_level=FIRST)
def cnn3(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32; 512, d."""
    return _cnn(shape, features, hidden=(512,))


@register(TABLE_9, images=True, low_level=SECOND)
def cnn4(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32, 5×5 64; 512, d."""
    return _cnn(shape, features, TWO_CONVOLUTIONS, (512,))


@register(TABLE_9, images=True, low_level=FIRST)
def cnn5(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32; 1024, d."""
    return _cnn(shape, features, hidden=(1024,))


@register(TABLE_9, images=True, low_level=SECOND)
def cnn6(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32, 5×5 64; 1024, d."""
    return _cnn(shape, features, TWO_CONVOLUTIONS, (1024,))


@register(TABLE_9, images=True, low_level=FIRST)
def cnn7(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32; 1024, 512, d."""
    return _cnn(shape, features, hidden=(1024, 512))


@register(TABLE_9, images=True, low_level=SECOND)
def cnn8(shape: tuple[int, ...], features: int) -> nn.Module:
    """5×5 32, 5×5 64; 1024, 512, d."""
    return _cnn(shape, features, TWO_CONVOLUTIONS, (1024, 512))
