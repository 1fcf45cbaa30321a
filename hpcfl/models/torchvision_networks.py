"""The other networks of torchvision that the papers train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcfl.models.registry import register

if TYPE_CHECKING:
    from torch import nn


def torchvision_extractor(
    shape: tuple[int, ...], features: int, name: str, min_size: int = 1, **arguments: bool
) -> nn.Module:
    """Returns torchvision's network of this name; images below `min_size` are padded."""
    from hpcfl.models.extractor import Extractor, without_classifier
    from hpcfl.utils.torchvision_loader import load_torchvision

    net = getattr(load_torchvision().models, name)(**arguments)
    return Extractor(without_classifier(net, shape[0]), features, min_size)


@register("FedTGP, FedORGP", images=True, low_level="net.inception3b")
def googlenet(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's GoogLeNet without auxiliary outputs."""
    return torchvision_extractor(shape, features, "googlenet", aux_logits=False, init_weights=False)


@register("FedTGP, FedORGP, ProtoNorm, sparse prototypes", images=True, low_level="net.features.3")
def mobilenet_v2(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's MobileNetV2."""
    return torchvision_extractor(shape, features, "mobilenet_v2")


@register("FedORGP", images=True, low_level="net.features.transition1")
def densenet121(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's DenseNet-121; images under 32×32 are padded."""
    return torchvision_extractor(shape, features, "densenet121", min_size=32)


@register("FedORGP, ProtoNorm, sparse prototypes", images=True, low_level="net.features.2")
def efficientnet_b0(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's EfficientNet-B0."""
    return torchvision_extractor(shape, features, "efficientnet_b0")


@register("ProtoNorm, sparse prototypes", images=True, low_level="net.stage2")
def shufflenet_v2(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ShuffleNetV2 ×1.0."""
    return torchvision_extractor(shape, features, "shufflenet_v2_x1_0")
