"""Heads: the layers between d features and K classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from hpcfl.models.registry import HEADS, PROTOTYPE_HEAD, RELU, UNIT_HEAD
from hpcfl.utils.accelerator import in_float64

EPS = 1e-6
"""Features shorter than this are not scaled up to length 1: gradients would explode."""


class PrototypeHead(nn.Module):
    """Logits s·⟨z/‖z‖, W⟩ with K fixed unit prototypes W and a learnable scale s: FedNH.

    W is a buffer, so that no gradient reaches it.
    """

    weight: Tensor

    def __init__(self, features: int, classes: int):
        super().__init__()
        self.register_buffer("weight", unit_prototypes(classes, features))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, z_BD: Tensor) -> Tensor:
        return self.scale * linear(normalize(z_BD, dim=1, eps=EPS), self.weight)


def unit_prototypes(classes: int, features: int) -> Tensor:
    """Returns unit vectors [K, d]: orthogonal ones, for K > d near to it; equal angles in the plane."""
    if features == 2:
        angle_K = 2 * math.pi * torch.arange(classes) / classes
        return torch.stack([angle_K.cos(), angle_K.sin()], 1)
    weight_KD = torch.empty(classes, features)
    if not weight_KD.is_meta:
        nn.init.orthogonal_(weight_KD)
    return normalize(weight_KD, dim=1)  # for K > d only the columns are orthonormal


class UnitLength(nn.Module):
    """Divides features by their length."""

    def forward(self, z_BD: Tensor) -> Tensor:
        return normalize(z_BD, dim=1, eps=EPS)


def build_head(kind: str, features: int, classes: int, dropout: float) -> nn.Module:
    """Returns a head by name, after dropout if there is any."""
    layers: list[nn.Module] = [UnitLength()] if kind == UNIT_HEAD else []
    layers += [nn.Dropout(dropout)] if dropout else []
    if kind == PROTOTYPE_HEAD:
        layers.append(PrototypeHead(features, classes))
    else:
        inputs = features
        for width in HEADS[kind]:
            layers += [nn.Linear(inputs, width), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.Linear(inputs, classes))
        if kind.endswith(RELU):
            layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers) if len(layers) > 1 else layers[0]


@torch.no_grad()
def class_norms(head: nn.Module) -> Tensor:
    """Returns the norm of each class's weights in the last layer, [K], in float64."""
    last = [layer for layer in head.modules() if isinstance(layer, nn.Linear | PrototypeHead)][-1]
    if isinstance(last, PrototypeHead):  # of length 1 but for rounding
        return torch.ones(len(last.weight), dtype=torch.float64)
    return in_float64(last.weight).norm(dim=1)
