"""Networks as torchvision publishes them, made extractors. No torch here until one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def torchvision_extractor(
    shape: tuple[int, ...], features: int, name: str, smallest: int = 1, **more: bool
) -> nn.Module:
    """Returns torchvision's network of this name; images below `smallest` are padded."""
    from hpcfl.models.extractor import Extractor, without_classifier
    from hpcfl.utils.torchvision_loader import load_torchvision

    net = getattr(load_torchvision().models, name)(**more)
    return Extractor(without_classifier(net, shape[0]), features, smallest)
