"""A client's network: an extractor of d features and a head of K classes, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hpcfl.models.registry import ARCHITECTURES


class Network(nn.Module):
    def __init__(self, extractor: nn.Module, head: nn.Module):
        super().__init__()
        self.extractor = extractor
        self.head = head

    def forward(self, x_B: Tensor) -> Tensor:
        return self.head(self.extractor(x_B))

    @property
    def has_batch_norm(self) -> bool:
        return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.modules())


def build(architecture: str, shape: tuple[int, ...], classes: int, features: int) -> Network:
    """Returns a network with fresh parameters, drawn from torch's global generator."""
    extractor = ARCHITECTURES[architecture].build(shape, features)
    return Network(extractor, nn.Linear(features, classes))


@dataclass(frozen=True)
class Cost:
    """What an architecture costs, whoever trains it."""

    parameters: int
    flops: int
    """Of a forward pass over one sample."""


def cost(network: Network, shape: tuple[int, ...]) -> Cost:
    """Returns the cost of a network on the `meta` device."""
    network.eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.empty(1, *shape, device="meta"))
    return Cost(sum(p.numel() for p in network.parameters()), counter.get_total_flops())


def costs(names: Iterable[str], shape: tuple[int, ...], classes: int, features: int) -> dict[str, Cost]:
    """Returns the cost of each architecture."""
    with torch.device("meta"):
        return {name: cost(build(name, shape, classes, features), shape) for name in names}
