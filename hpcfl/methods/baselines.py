"""The catalogue entries and options of the baselines. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Count, Positive, Section, Weight
from hpcfl.methods.declared_metrics import ACCURACY_TRAINED, DISTILL_METRICS, SERVER_METRICS
from hpcfl.methods.spec import AlgorithmSpec


class FedGhOptions(Section):
    server_lr: Positive = 0.01
    """Learning rate of the server's SGD, which is new in each round; unset: train.lr."""
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Epochs over the uploaded prototypes per round."""
    server_batch: Count | None = None
    """Uploaded prototypes per step of the server's SGD; unset: train.batch_size."""


class FedDistillOptions(Section):
    weight: Weight = 1.0
    """γ, the weight of the distillation term."""
    term: Literal["mse", "softmax", "logits"] = "mse"
    """mse of logits; cross-entropy against softmax targets; or against raw logits (diverges)."""


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
}
