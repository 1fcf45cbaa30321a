"""The catalogue entries and options of the baselines. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Count, Positive, Section, Share, Weight
from hpcfl.methods.baseline_metrics import (
    ACCURACY_TRAINED,
    DISTILL_METRICS,
    FEDNH_METRICS,
    FEDUV_METRICS,
    GENERATED_METRICS,
    LEVEL_METRICS,
    LOSS_FEATURES,
    MUTUAL_METRICS,
    SERVER_METRICS,
)
from hpcfl.methods.declared_metrics import ACCURACY_GLOBAL
from hpcfl.methods.spec import AlgorithmSpec

Energy = Annotated[float, Field(gt=0, le=1)]


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
    "fedgen": AlgorithmSpec(
        about="heads are averaged; clients also train theirs on features that the server's generator makes",
        paper="Zhu et al., FedGen, ICML 2021",
        page="fedgen",
        algorithm="hpcfl.algorithms.fedgen:FedGen",
        Options=FedGenOptions,
        settings=FedGenOptions(),
        metrics=(ACCURACY_TRAINED, *SERVER_METRICS, *GENERATED_METRICS),
        not_counted=("the training of the generator on rank 0: not counted",),
        equal_heads=True,
    ),
    "fedmps": AlgorithmSpec(
        about="prototypes of two levels of features, and soft labels of a classifier that the server trains",
        paper="Yang et al., FedMPS, TNNLS 2025",
        page="fedmps",
        algorithm="hpcfl.algorithms.fedmps:FedMps",
        Options=FedMpsOptions,
        settings=FedMpsOptions(),
        metrics=(ACCURACY_GLOBAL, *SERVER_METRICS, *LEVEL_METRICS),
        not_counted=("the training of the classifier on rank 0: not counted",),
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
        not_counted=(
            "the factorisation of the auxiliary network, by clients and server: not counted",
            "bytes are an upper bound: the ranks of the factors are known only in the run",
        ),
    ),
}
