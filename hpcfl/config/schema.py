"""A run as typed, strict models. The defaults are the quick start, so an empty file is a valid run."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpcfl.config.method import MethodConfig
from hpcfl.config.section import Count, Names, Positive, Section, Seed, Weights


class DataConfig(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "spiral"
    """The dataset: spiral, or the name of one that `hpcfl data prepare` made."""
    root: str = Field(default_factory=lambda: os.environ.get("HPCFL_DATA", "data"))
    """Where prepared datasets lie; $HPCFL_DATA is the default. Built-in data needs none."""
    samples_per_class: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Points of each of the spiral's six arms (the papers draw 5000)."""
    style: Literal["fednh", "supplement"] = "fednh"
    """The spiral's formula: FedNH's generator, or as printed in ProtoNorm's supplement A."""
    normalise: Literal["channel", "half"] = "channel"
    """Images: by each channel's mean and deviation, or (x/255 − 0.5)/0.5 as the papers' code does."""


class PartitionConfig(Section):
    name: Literal["dirichlet", "iid", "pathological", "nway_kshot", "natural", "file"] = "dirichlet"
    """How samples are dealt to clients; natural: a client is a writer; file: as partition.file says."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """dirichlet: its concentration; the smaller, the more the clients differ."""
    classes_per_client: Count = 2
    """pathological: how many classes a client has."""
    ways: Annotated[float, Field(ge=1, le=1e6)] = 3.0
    """nway_kshot: a client's number of classes is drawn from a normal distribution with this mean."""
    shots: Annotated[float, Field(ge=1, le=1e9)] = 100.0
    """nway_kshot: its training samples per class, likewise."""
    deviation: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """nway_kshot: the standard deviation of both."""
    unlabelled: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    """nway_kshot: further samples per client, of its classes, without their labels."""
    file: str | None = None
    """A split to be used exactly: an .npz with train_0, test_0, train_1, …; name is then file."""
    train_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """A client's share of samples to train on; the rest tests."""
    style: Literal["stratified", "published"] = "stratified"
    """Every class split alike into train and test; or dealt and split as the papers' generator does."""
    min_samples: Count | None = None
    """The least number of samples of a client (10; published: 40); draws below it are repeated."""
    seed: Seed = 1
    """Keys the split alone, so that one split serves runs of several seeds."""

    @model_validator(mode="before")
    @classmethod
    def _a_file_is_a_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("file") is not None:
            return {"name": "file"} | given
        return given


class ModelsConfig(Section):
    group: str = "mlp4"
    """A group of architectures, with -htc4 for different heads, or one architecture for all clients."""
    list: Names | None = Field(default=None, min_length=1)
    """Architectures by name or import path (package.module:function), in place of a group."""
    weights: Weights | None = None
    """How often each of the list comes in turn; without, once."""
    head: Literal["linear", "mlp512", "mlp256", "mlp128", "htc4"] = "linear"
    """The classifier on top of the features; mlp…: with a hidden layer; htc4: all four in turn."""
    features: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Width d of the features and so of the prototypes (512; 32 for points), the same for all clients."""
    pretrained: dict[str, str] = Field(default_factory=dict)
    """By architecture: a file of weights, or torchvision's name for them (in the local cache)."""
    same_start: bool = False
    """Clients of one architecture start from the same parameters."""


class TrainConfig(Section):
    lr: Positive = 0.01
    """Learning rate of the clients' SGD, which starts anew in each round."""
    batch_size: Count = 32
    """Samples per step; the last, smaller batch is trained on too."""
    epochs: Count = 1
    """Passes over the training split per round."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of the clients' SGD."""
    augment: list[Literal["crop", "flip", "randaugment"]] = Field(default_factory=list)
    """What is done to training images at random: cropped (4 pixels of padding), flipped, RandAugment."""


def _participation(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a ratio (0 < ratio ≤ 1.0) or a whole number of clients")
    if isinstance(value, float) and not 0 < value <= 1:
        raise ValueError("a ratio must be above 0 and at most 1.0")
    if isinstance(value, int) and value < 1:
        raise ValueError("a number of clients must be at least 1")
    return value


class FederationConfig(Section):
    clients: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """How many clients there are."""
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 25
    """How many rounds are run."""
    participation: Annotated[int | float, BeforeValidator(_participation)] = 1.0
    """Clients per round: a ratio (1.0 = all; at least one client) or a whole number (1 = one client)."""

    @property
    def per_round(self) -> int:
        """The number of participants of a round; a ratio is rounded half up."""
        if isinstance(self.participation, int):
            return self.participation
        return max(1, int(self.participation * self.clients + 0.5))


class LogConfig(Section):
    evaluate_every: Count = 1
    """Rounds between evaluations of all clients; the last round is always evaluated."""
    prototypes_every: Count = 10
    """Rounds between saved global prototypes; those of the last round are always saved."""
    local_prototypes: bool = False
    """Save what clients uploaded beside them (clients × K × d floats each time)."""
    distances: bool = False
    """Save beside them the pairwise distances of every iteration of thomson."""


class RuntimeConfig(Section):
    placement: Literal["pool", "pinned"] = "pool"
    """The ranks that share a device take its clients one by one; or every client stays on one rank."""
    arena: Literal["auto", "shared", "mapped", "private"] = "auto"
    """Where a node keeps its clients: shared memory, a mapped file, or each rank alone, pinning them."""
    pretend_nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Treat every node as so many: for trying out on one machine what happens between nodes."""
    stall_minutes: Annotated[float, Field(ge=0)] = 0.0
    """End the job, and name the ranks, if some finish no client for so long while others wait; 0: never."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Threads per client and for the server; part of what fixes the bits."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks are trained; auto is cuda where there is one. The device follows the local rank."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the clients' networks; the server aggregates in float64."""
    step: Literal["auto", "direct", "plain"] = "auto"
    """direct: layers move their weights in the backward pass; plain: torch's own; auto: direct on CPUs."""
    graphs: bool = False
    """On GPUs, record a client's step and replay it for its batches (CUDA graphs)."""
    inference_batch: Count = 256
    """Samples per forward pass outside training; part of what fixes the bits."""
    checkpoint_minutes: Annotated[float, Field(ge=0, le=1e6)] = 10.0
    """Minutes between checkpoints; 0: only at the end and on a stop, unless by rounds."""
    checkpoint_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Rounds between checkpoints; 0: by minutes alone."""
    walltime_minutes: Literal["auto", "off"] | Annotated[float, Field(gt=0, le=1e7)] = "auto"
    """When to stop in time: after so many minutes; auto: as Slurm says; off: never."""


class Config(Section):
    seed: Seed = 0
    """Keys every random choice but the partition."""
    data: DataConfig = Field(default_factory=DataConfig)
    partition: PartitionConfig = PartitionConfig()
    models: ModelsConfig = ModelsConfig()
    train: TrainConfig = TrainConfig()
    method: MethodConfig = MethodConfig()
    federation: FederationConfig = FederationConfig()
    log: LogConfig = LogConfig()
    runtime: RuntimeConfig = RuntimeConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        number, clients = self.federation.participation, self.federation.clients
        if isinstance(number, int) and number > clients:
            raise ValueError(f"federation.participation = {number}: more than federation.clients = {clients}")
        if self.models.list is not None and "group" in self.models.model_fields_set:
            raise ValueError("models.list and models.group: give one of them, not both")
        if self.models.weights is not None and len(self.models.weights) != len(self.models.list or []):
            raise ValueError("models.weights: must have as many numbers as models.list has names")
        if self.runtime.step == "direct" and self.runtime.precision != "float32":
            raise ValueError("runtime.step = 'direct': only with runtime.precision = 'float32'")
        if self.runtime.graphs and self.runtime.device == "cpu":
            raise ValueError("runtime.graphs = true: only on GPUs, runtime.device is 'cpu'")
        deal = self.partition
        if (deal.file is not None) != (deal.name == "file"):
            raise ValueError(f"partition.name = {deal.name!r}: 'file' and the key partition.file go together")
        if deal.style == "published" and deal.name not in ("dirichlet", "pathological"):
            raise ValueError(
                f"partition.style = 'published': only dirichlet and pathological have it, not {deal.name}"
            )
        if deal.unlabelled and deal.name != "nway_kshot":
            raise ValueError(
                f"partition.unlabelled = {deal.unlabelled}: only nway_kshot has unlabelled samples"
            )
        return self

    def evaluates(self, round_: int) -> bool:
        """Says whether all clients are evaluated after this round (counted from 0)."""
        return self._due(round_, self.log.evaluate_every)

    def saves_prototypes(self, round_: int) -> bool:
        """Says whether this round's global prototypes are kept in the log."""
        return self._due(round_, self.log.prototypes_every)

    def _due(self, round_: int, every: int) -> bool:
        return (round_ + 1) % every == 0 or round_ + 1 == self.federation.rounds
