"""The catalogue entries and options of the baselines. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Count, Positive, Section, Share, Weight
from hpcfl.methods.declared_metrics import (
    ACCURACY_TRAINED,
    DISTILL_METRICS,
    LOSS_FEATURES,
    MUTUAL_METRICS,
    SERVER_METRICS,
)
from hpcfl.methods.spec import AlgorithmSpec

Energy = Annotated[float, Field(gt=0, le=1)]


class ClippedOptions(Section):
    clip_norm: Weight = 10.0
    """Norm to which a network's gradients are clipped (needs the plain step); 0: never."""


class FedGhOptions(Section):
    server_lr: Positive = 0.01
    """Learning rate of the server's SGD, which is new in each round."""
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Epochs over the uploaded prototypes per round."""


class FedDistillOptions(Section):
    weight: Weight = 1.0
    """γ, the weight of the distillation term."""
    term: Literal["mse", "softmax", "logits"] = "mse"
    """mse of logits; cross-entropy against softmax targets; or against raw logits (diverges)."""


AUXILIARY_CHOICES = ("smallest", "first")


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


BASELINES = {
    "lg-fedavg": AlgorithmSpec(
        about="heads are averaged; extractors stay with their clients",
        paper="Liang et al., LG-FedAvg, 2020",
        page="lg-fedavg",
        algorithm="hpcfl.algorithms.lg_fedavg:LgFedAvg",
        metrics=(ACCURACY_TRAINED,),
        equal_heads=True,
    ),
    "fedgh": AlgorithmSpec(
        about="the server trains one head on uploaded prototypes and sends it to all",
        paper="Yi et al., FedGH, ACM MM 2023",
        page="fedgh",
        algorithm="hpcfl.algorithms.fedgh:FedGh",
        Options=FedGhOptions,
        settings=FedGhOptions(),
        metrics=(ACCURACY_TRAINED, *SERVER_METRICS),
        equal_heads=True,
    ),
    "feddistill": AlgorithmSpec(
        about="clients follow the mean logits of their labels, averaged over clients",
        paper="Jeong et al., federated distillation, 2018",
        page="feddistill",
        algorithm="hpcfl.algorithms.feddistill:FedDistill",
        Options=FedDistillOptions,
        settings=FedDistillOptions(),
        metrics=DISTILL_METRICS,
    ),
    "fml": AlgorithmSpec(
        about="a small network is averaged; it and each client's own learn from each other",
        paper="Shen et al., FML, 2020",
        page="fml",
        algorithm="hpcfl.algorithms.fml:Fml",
        Options=FmlOptions,
        settings=FmlOptions(),
        metrics=MUTUAL_METRICS,
    ),
    "fedkd": AlgorithmSpec(
        about="as fml, with features too; the small network travels as low-rank factors",
        paper="Wu et al., FedKD, Nature Communications 2022",
        page="fedkd",
        algorithm="hpcfl.algorithms.fedkd:FedKd",
        Options=FedKdOptions,
        settings=FedKdOptions(),
        metrics=(*MUTUAL_METRICS, LOSS_FEATURES),
    ),
}
