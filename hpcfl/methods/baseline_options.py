"""The options of the baselines: their keys of `[method]`. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Count, Positive, Section, Share, Weight

Energy = Annotated[float, Field(gt=0, le=1)]


class ClippedOptions(Section):
    clip_norm: Weight = 10.0
    """Norm to which a network's gradients are clipped (needs the plain step); 0: never."""


class FedGhOptions(Section):
    server_lr: Positive = 0.01
    """Learning rate of the server's SGD, which is new in each round."""
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Epochs over the uploaded prototypes per round."""
    server_batch: Count | None = None
    """Uploaded prototypes per step of the server's SGD; unset: train.batch_size."""


class FedDistillOptions(Section):
    weight: Weight = 1.0
    """γ, the weight of the distillation term."""
    term: Literal["mse", "softmax", "logits"] = "mse"
    """mse of logits; cross-entropy against softmax targets; or against raw logits (diverges)."""


class FedAvgOptions(Section):
    weighted: bool = True
    """Whether networks are averaged by samples, which then travel too; if not, all count alike."""
    buffers: bool = False
    """Whether batch-norm statistics are averaged too; if not, each client keeps its own."""
    first_download: bool = True
    """Whether all clients start from one network; if not, each starts from its own."""


class FedUvOptions(Section):
    variance: Weight = 2.5
    """μ, the weight of the variance term."""
    uniformity: Weight = 0.5
    """λ, the weight of the uniformity term."""


class FedNhOptions(ClippedOptions):
    smoothing: Share = 0.9
    """ρ, the share of its last value that a prototype keeps in a round."""
    scale: Positive = 1.0
    """s before the first round, the factor of cosines in logits; clients train it."""


class FedGenOptions(Section):
    weight: Weight = 1.0
    """Weight of the cross-entropy on generated features."""
    noise: Count = 32
    """Numbers of noise that the generator takes beside the label."""
    server_steps: Count = 100
    """Steps of the generator's training per round, each on as many labels as a client's batch has."""
    server_lr: Positive = 0.1
    """Learning rate of the server's Adam, which is new in each round."""
    generator: Literal["trained", "initial", "none"] = "trained"
    """Which generator clients receive; initial and none are what published programs do."""


class FedMpsOptions(Section):
    high: Weight = 1.0
    """Weight of the contrastive term of the features."""
    low: Weight = 0.2
    """Weight of the contrastive term of the lower level of features."""
    soft: Weight = 5.0
    """Weight of the distillation from the server's soft labels."""
    low_features: Count | None = None
    """Width of the lower level; default: that of the narrowest network, at most 4096."""
    contrast_temperature: Positive = 0.5
    """Temperature of the contrastive terms."""
    soft_temperature: Positive = 5.0
    """Temperature of the soft labels."""
    server_lr: Positive = 0.001
    """Learning rate of the server's Adam, which is new in each round."""
    server_epochs: Count = 6
    """Epochs over the uploaded prototypes per round."""
    server_batch: Count = 4
    """Uploaded prototypes per step of the server's Adam."""
    own_classes: bool = False
    """Whether inference by prototypes considers only the client's own classes."""


class MutualOptions(ClippedOptions):
    auxiliary: str = "smallest"
    """Auxiliary network: the smallest of the clients' networks; the first client's; or an architecture."""
    published: bool = False
    """As published: teachers not detached, KL ÷ K; fedkd: always factors, some of them zeroed."""


class FmlOptions(MutualOptions):
    alpha: Share = 0.5
    """α, the weight of the cross-entropy of a client's network; 1 − α is that of the distillation."""
    beta: Share = 0.5
    """β, the same of the auxiliary network."""


class FedKdOptions(MutualOptions):
    energy_start: Energy = 0.95
    """Share of the squared singular values that factors keep, in the first round."""
    energy_end: Energy = 0.98
    """The same after energy_rounds; linear between."""
    energy_rounds: Count = 1000
    """Rounds from energy_start to energy_end."""
