"""A client's network: a feature extractor (d features) and a head (K classes)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hpcfl.errors import BadInput
from hpcfl.models.heads import build_head, class_norms
from hpcfl.models.registry import find_architecture, is_user_defined, split_name
from hpcfl.utils.user_code import describe_error


class Network(nn.Module):
    """An extractor followed by a head; returns logits."""

    def __init__(self, extractor: nn.Module, head: nn.Module):
        super().__init__()
        self.extractor = extractor
        self.head = head

    def forward(self, x_B: Tensor) -> Tensor:
        return self.head(self.extractor(x_B))

    def head_norms(self) -> Tensor:
        """Returns the norm of each class's weights in the last layer, [K], in float64."""
        return class_norms(self.head)

    @property
    def batch_norms(self) -> list[nn.Module]:
        return [m for m in self.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]

    @property
    def has_batch_norm(self) -> bool:
        return bool(self.batch_norms)

    @contextmanager
    def frozen_batch_norm(self) -> Iterator[None]:
        """Within it, batch-norm layers are in eval mode: one sample has no variance to normalise by."""
        modules = [module for module in self.batch_norms if module.training]
        for module in modules:
            module.eval()
        try:
            yield
        finally:
            for module in modules:
                module.train()


def build_network(architecture: str, shape: tuple[int, ...], classes: int, features: int) -> Network:
    """Returns a network with random parameters, drawn from torch's global generator."""
    name, head = split_name(architecture)
    entry = find_architecture(name)
    if entry.images and len(shape) != 3:
        raise BadInput(
            f"models: {name} takes images, a sample here has the shape {'×'.join(map(str, shape))}; "
            "the groups series3 and vectors3 take any numbers"
        )
    try:
        extractor = entry.build(shape, features)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        reason = describe_error(error) if is_user_defined(name) else error
        raise BadInput(f"models: {name} cannot be built for samples of shape {shape} ({reason})") from None
    if not isinstance(extractor, nn.Module):
        raise BadInput(f"models: {name} gave {type(extractor).__name__}, not a torch module")
    return Network(extractor, build_head(head, features, classes, entry.dropout))


def build_on_meta(architecture: str, shape: tuple[int, ...], classes: int, features: int) -> Network:
    """Returns a network on the `meta` device, which has no memory."""
    with torch.device("meta"):
        return build_network(architecture, shape, classes, features)
