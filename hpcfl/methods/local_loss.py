"""The terms that a method adds to the client's cross-entropy: alignment, proxy and consistency."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import DISTANCES
from hpcfl.methods.plugins import load
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.spec import PrototypeSpec

Distance = Callable[[Tensor, Tensor], Tensor]
"""(features, prototypes of their labels) → distances: [B, D] and [B, D] → [B]."""


def distance(weight: float | None = None, by_angle: bool = False) -> Callable[[Distance], Distance]:
    """Returns a decorator that declares what a distance is combined with.

    `weight` is its λ unless `method.weight` is set; None: it must be set. `by_angle` says that it compares
    directions, so that lengths (γ) mean nothing and inference compares directions too.
    """

    def declare(function: Distance) -> Distance:
        vars(function).update(weight=weight, by_angle=by_angle)
        return function

    return declare


@declares(DISTANCES["mse"])
def mse(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Returns the squared difference, mean over dimensions, as in published code."""
    return (z_BD - target_BD).square().mean(1)


@declares(DISTANCES["euclid"])
def euclid(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Returns the Euclidean distance, ρ of ProtoNorm's Eq. (5), with gradient zero at distance zero."""
    square_B = squared_euclid(z_BD, target_BD)
    positive_B = square_B > 0
    return torch.where(positive_B, square_B.where(positive_B, 1.0).sqrt(), 0.0)


@declares(DISTANCES["sq"])
def squared_euclid(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Returns the squared Euclidean distance."""
    return (z_BD - target_BD).square().sum(1)


@declares(DISTANCES["cosine"])
def cosine(z_BD: Tensor, target_BD: Tensor) -> Tensor:
    """Returns 1 − cosine, L_R of FedORGP's Eq. (8); eps keeps gradients finite for features near zero."""
    return 1 - (normalize(z_BD, eps=1e-6) * normalize(target_BD, eps=1e-6)).sum(1)


def proxy(z_BD: Tensor, y_B: Tensor, target: Prototypes, scale: float) -> Tensor:
    """Returns the cross-entropy of the logits s·cos(z, p_c) over the present classes c: FedSAP (8), (9)."""
    cosine_BK = normalize(z_BD, eps=1e-6) @ normalize(target.value_KD, eps=1e-6).T
    logit_BK = (scale * cosine_BK).masked_fill(~target.present_K, -torch.inf)
    present_B = target.present_K[y_B]
    logit_BK = logit_BK.where(present_B[:, None], 0.0)
    return torch.where(present_B, cross_entropy(logit_BK, y_B, reduction="none"), 0.0).mean()


SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda u: 1.0,
    "linear": lambda u: u,
    "cosine": lambda u: (1 - math.cos(math.pi * u)) / 2,
    "sigmoid": lambda u: (_sigmoid(10 * (u - 0.5)) - _sigmoid(-5)) / (_sigmoid(5) - _sigmoid(-5)),
    "step": lambda u: float(u >= 0.5),
}
"""Curriculum: the factor of λ as the progress u goes from 0 to 1."""


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


Term = tuple[float, Tensor]
"""A weight and the unweighted loss of a batch."""


@dataclass(frozen=True, eq=False)
class LocalLoss:
    """The terms that a method adds to the cross-entropy of a batch.

    `align` is λ_t times the mean distance of features to the global prototypes of their labels: ProtoNorm
    (4), (5), FedORGP (8), FedSAP (5). Papers with Euclidean distance write it between prototypes; published
    code, and this, takes it per sample. A sample whose class has no global prototype adds zero but counts in
    the mean's denominator. `class_weights = "balanced"` is as printed: the distance is that of a class's mean
    feature in the batch, and the mean is over the classes of the batch. `proxy` is FedSAP's (9),
    `consistency` its (12).
    """

    spec: PrototypeSpec
    mask_KD: Tensor | None = None

    @cached_property
    def distance(self) -> Distance:
        """The distance of features to the prototypes of their labels."""
        return load(self.spec.distance_part.path)

    def weight(self, t: int) -> float:
        """Returns λ in round t (from 0): FedSAP Eq. (7), with a start round and any shape."""
        start, end = self.spec.curriculum_start, self.spec.curriculum_end
        u = min(max((t + 1 - start) / (end - start), 0.0), 1.0)
        return self.spec.weight * SHAPES[self.spec.curriculum](u)

    def bind(self, t: int, target: Prototypes, count_K: Tensor) -> BoundLoss:
        """Returns the loss of a client with these class counts in round t."""
        return BoundLoss(self, t, target, (count_K / count_K.max()).to(target.value_KD))


@dataclass(frozen=True, eq=False)
class BoundLoss:
    """The local loss of one client in one round."""

    local_loss: LocalLoss
    t: int
    target: Prototypes
    beta_K: Tensor
    """β_ij = n_ij / max_k n_ik: the sparse-prototype paper's Eq. (12)."""

    def __call__(
        self, z_BD: Tensor, y_B: Tensor, strong: tuple[Tensor, Tensor] | None = None
    ) -> dict[str, Term]:
        """Returns the terms of a batch by name; `strong` are features and pseudo-labels of strong views."""
        spec, target = self.local_loss.spec, self.target
        terms = {"align": (self.local_loss.weight(self.t), self._align(z_BD, y_B))}
        if spec.proxy and self.t + 1 >= spec.proxy_start:
            terms["proxy"] = spec.proxy, proxy(z_BD, y_B, target, spec.proxy_scale)
        if strong is not None:
            z_UD, y_U = strong
            terms["consistency"] = spec.consistency, cosine(z_UD, target.value_KD[y_U]).mean()
        return terms

    def _align(self, z_BD: Tensor, y_B: Tensor) -> Tensor:
        spec, mask_KD = self.local_loss.spec, self.local_loss.mask_KD
        present_K = self.target.present_K
        by_class = spec.class_weights in ("per-class", "balanced")
        num_classes: Tensor | int = 1
        if by_class:
            z_BD, in_batch_K = _class_means(z_BD, y_B, len(present_K))
            y_B, present_K = torch.arange(len(present_K), device=y_B.device), present_K & in_batch_K
            num_classes = in_batch_K.sum()
        if mask_KD is not None and spec.masked != "never":  # mse still divides by d
            z_BD = z_BD * mask_KD[y_B]
        distance_B = self.local_loss.distance(z_BD, self.target.value_KD[y_B])
        if spec.class_weights in ("proportional", "per-class"):
            distance_B = distance_B * self.beta_K[y_B]
        distance_B = torch.where(present_K[y_B], distance_B, 0.0)
        if spec.class_weights == "balanced":  # FedTGP (11), ProtoNorm (5) as a mean
            return distance_B.sum() / num_classes
        return distance_B.sum() if by_class else distance_B.mean()


def _class_means(z_BD: Tensor, y_B: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Returns the mean feature of every class of a batch, [K, D], and which classes are in it, [K]."""
    count_K = torch.zeros(classes, device=z_BD.device).index_add(0, y_B, torch.ones_like(z_BD[:, 0]))
    sum_KD = torch.zeros(classes, z_BD.shape[1], device=z_BD.device).index_add(0, y_B, z_BD)
    return sum_KD / count_K.clamp_min(1)[:, None], count_K > 0
