"""Residual networks: torchvision's, and shallower ones built from its basic block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcfl.models.registry import register
from hpcfl.models.torchvision_networks import torchvision_extractor

if TYPE_CHECKING:
    from torch import nn

SHALLOW = "FedTGP (HtFE9), ProtoNorm, sparse prototypes"
PAPERS = "FedTGP, FedORGP"


def _shallow(shape: tuple[int, ...], features: int, stages: int) -> nn.Module:
    """Returns torchvision's ImageNet stem and stages of one basic block each: 64, 128, 256, 512 channels."""
    from torch import nn

    from hpcfl.models.extractor import Extractor
    from hpcfl.utils.torchvision_loader import load_torchvision

    block = load_torchvision().models.resnet.BasicBlock
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    inputs = 64
    for stage in range(stages):
        width, stride = 64 * 2**stage, 1 if stage == 0 else 2
        downsample = None
        if stride != 1:
            downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        layers.append(block(inputs, width, stride, downsample))
        inputs = width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return Extractor(net, features)


@register(SHALLOW, images=True, low_level="net.4")
def resnet4(shape: tuple[int, ...], features: int) -> nn.Module:
    """One stage of one basic block."""
    return _shallow(shape, features, 1)


@register(SHALLOW, images=True, low_level="net.4")
def resnet6(shape: tuple[int, ...], features: int) -> nn.Module:
    """Two stages of one basic block."""
    return _shallow(shape, features, 2)


@register(SHALLOW, images=True, low_level="net.4")
def resnet8(shape: tuple[int, ...], features: int) -> nn.Module:
    """Three stages of one basic block."""
    return _shallow(shape, features, 3)


@register(SHALLOW, images=True, low_level="net.4")
def resnet10(shape: tuple[int, ...], features: int) -> nn.Module:
    """Four stages of one basic block."""
    return _shallow(shape, features, 4)


@register(PAPERS, images=True, low_level="net.layer1")
def resnet18(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ResNet-18."""
    return torchvision_extractor(shape, features, "resnet18")


@register(PAPERS, images=True, low_level="net.layer1")
def resnet34(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ResNet-34."""
    return torchvision_extractor(shape, features, "resnet34")


@register(PAPERS, images=True, low_level="net.layer1")
def resnet50(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ResNet-50."""
    return torchvision_extractor(shape, features, "resnet50")


@register(PAPERS, images=True, low_level="net.layer1")
def resnet101(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ResNet-101."""
    return torchvision_extractor(shape, features, "resnet101")


@register(PAPERS, images=True, low_level="net.layer1")
def resnet152(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ResNet-152."""
    return torchvision_extractor(shape, features, "resnet152")
