"""The other networks of torchvision that the papers train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcfl.models.registry import register
from hpcfl.models.torchvision_models import torchvision_extractor

if TYPE_CHECKING:
    from torch import nn


@register("FedTGP, FedORGP", images=True)
def googlenet(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's GoogLeNet without auxiliary outputs."""
    return torchvision_extractor(shape, features, "googlenet", aux_logits=False, init_weights=False)


@register("FedTGP, FedORGP, ProtoNorm, sparse prototypes", images=True)
def mobilenet_v2(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's MobileNetV2."""
    return torchvision_extractor(shape, features, "mobilenet_v2")


@register("FedORGP", images=True)
def densenet121(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's DenseNet-121; images under 32×32 are padded."""
    return torchvision_extractor(shape, features, "densenet121", smallest=32)


@register("FedORGP, ProtoNorm, sparse prototypes", images=True)
def efficientnet_b0(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's EfficientNet-B0."""
    return torchvision_extractor(shape, features, "efficientnet_b0")


@register("ProtoNorm, sparse prototypes", images=True)
def shufflenet_v2(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ShuffleNetV2 ×1.0."""
    return torchvision_extractor(shape, features, "shufflenet_v2_x1_0")
