"""The catalogue entries and options of the baselines. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Count, Positive, Section, Share, Weight
from hpcfl.methods.declared_metrics import (
    ACCURACY_TRAINED,
    DISTILL_METRICS,
    FEDNH_METRICS,
    FEDUV_METRICS,
    SERVER_METRICS,
)
from hpcfl.methods.spec import AlgorithmSpec


class ClippedOptions(Section):
    clip_norm: Weight = 10.0
    """Norm to which a network's gradients are clipped (needs the plain step); 0: never."""


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
    "fedavg": AlgorithmSpec(
        about="networks are averaged",
        paper="McMahan et al., FedAvg, AISTATS 2017",
        page="fedavg",
        algorithm="hpcfl.algorithms.fedavg:FedAvg",
        Options=FedAvgOptions,
        settings=FedAvgOptions(),
        metrics=(ACCURACY_TRAINED,),
        equal_networks=True,
    ),
    "feduv": AlgorithmSpec(
        about="networks are averaged; clients keep outputs varied and features spread evenly",
        paper="Son et al., FedUV, CVPR 2024",
        page="feduv",
        algorithm="hpcfl.algorithms.feduv:FedUv",
        Options=FedUvOptions,
        settings=FedUvOptions(),
        metrics=(ACCURACY_TRAINED, *FEDUV_METRICS),
        equal_networks=True,
    ),
    "fednh": AlgorithmSpec(
        about="networks are averaged; their heads are fixed prototypes that the server moves slowly",
        paper="Dai et al., FedNH, AAAI 2023",
        page="fednh",
        algorithm="hpcfl.algorithms.fednh:FedNh",
        Options=FedNhOptions,
        settings=FedNhOptions(),
        metrics=(ACCURACY_TRAINED, *FEDNH_METRICS),
        equal_networks=True,
        head_kind="prototypes",
    ),
}
