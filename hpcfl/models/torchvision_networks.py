"""The other networks of torchvision that the papers train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcfl.models.registry import register

if TYPE_CHECKING:
    from torch import nn

    from hpcfl.models.extractor import Extractor


def torchvision_extractor(
    shape: tuple[int, ...],
    features: int,
    name: str,
    min_size: int = 1,
    dropout: float = 0.0,
    **arguments: bool,
) -> Extractor:
    """Returns torchvision's network of this name; images below `min_size` are padded."""
    from hpcfl.models.extractor import Extractor, without_classifier
    from hpcfl.utils.torchvision_loader import load_torchvision

    net = getattr(load_torchvision().models, name)(**arguments)
    return Extractor(without_classifier(net, shape[0]), features, min_size, dropout)


@register("FedTGP, FedORGP", images=True, low_level="net.inception3b")
def googlenet(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's GoogLeNet without auxiliary outputs."""
    return torchvision_extractor(shape, features, "googlenet", aux_logits=False, init_weights=False)


@register("FedTGP, FedORGP", images=True, published_form_of="googlenet", low_level="net.inception3b")
def googlenet_published(shape: tuple[int, ...], features: int) -> nn.Module:
    """googlenet, whose convolutions start as torchvision's: truncated normal, deviation 0.01."""
    from torch import nn

    extractor = googlenet(shape, features)
    for module in extractor.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.trunc_normal_(module.weight, mean=0.0, std=0.01, a=-2.0, b=2.0)
    return extractor


@register("FedTGP, FedORGP, ProtoNorm, sparse prototypes", images=True, low_level="net.features.3")
def mobilenet_v2(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's MobileNetV2."""
    return torchvision_extractor(shape, features, "mobilenet_v2")


@register(
    "FedTGP, FedORGP, ProtoNorm, sparse prototypes",
    images=True,
    published_form_of="mobilenet_v2",
    low_level="net.features.3",
)
def mobilenet_v2_published(shape: tuple[int, ...], features: int) -> nn.Module:
    """mobilenet_v2 with Dropout(0.2) on its 1280 features, before they are pooled to d."""
    from torch import nn

    extractor = torchvision_extractor(shape, features, "mobilenet_v2")
    extractor.net.classifier = nn.Dropout(0.2)
    return extractor


@register("FedORGP", images=True, low_level="net.features.transition1")
def densenet121(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's DenseNet-121; images under 32×32 are padded."""
    return torchvision_extractor(shape, features, "densenet121", min_size=32)


@register("FedORGP, ProtoNorm, sparse prototypes", images=True, low_level="net.features.2")
def efficientnet_b0(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's EfficientNet-B0."""
    return torchvision_extractor(shape, features, "efficientnet_b0")


@register(
    "FedORGP, ProtoNorm, sparse prototypes",
    images=True,
    published_form_of="efficientnet_b0",
    low_level="net.features.2",
)
def efficientnet_b0_published(shape: tuple[int, ...], features: int) -> nn.Module:
    """efficientnet_b0 with Dropout(0.2) on its d features, before the head."""
    # ProtoNorm's code drops in place, so that not only the head but the alignment, too, sees it
    return torchvision_extractor(shape, features, "efficientnet_b0", dropout=0.2)


@register("ProtoNorm, sparse prototypes", images=True, low_level="net.stage2")
def shufflenet_v2(shape: tuple[int, ...], features: int) -> nn.Module:
    """torchvision's ShuffleNetV2 ×1.0."""
    return torchvision_extractor(shape, features, "shufflenet_v2_x1_0")
