"""The configuration of a run as typed, strict models; the defaults are the quick start."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpcfl.config.data import DataConfig, sized
from hpcfl.config.method import MethodConfig
from hpcfl.config.section import Count, Names, Section, Seed, Share, Weights
from hpcfl.config.system import SystemConfig
from hpcfl.config.train import NO_CLIPPING, TrainConfig


class PartitionConfig(Section):
    name: Literal["dirichlet", "iid", "pathological", "nway_kshot", "natural", "file"] = "dirichlet"
    """How samples are assigned to clients; natural: one writer per client; file: from partition.file."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """dirichlet: concentration α; the smaller, the more the clients differ."""
    classes_per_client: Count = 2
    """pathological: number of classes per client."""
    ways: Annotated[float, Field(ge=1, le=1e6)] = 3.0
    """nway_kshot: mean number of classes per client, which is drawn from a normal distribution."""
    shots: Annotated[float, Field(ge=1, le=1e9)] = 100.0
    """nway_kshot: mean number of training samples per class of a client, drawn likewise."""
    deviation: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """nway_kshot: standard deviation of both distributions."""
    unlabelled: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    """nway_kshot: number of additional, unlabelled samples per client, from its classes."""
    file: str | None = None
    """Split to use exactly: an .npz with train_0, test_0, train_1, …; sets partition.name to file."""
    train_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Share of a client's samples for training; the rest is for testing."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of a client's training samples that is set apart to select a round; 0: none."""
    style: Literal["stratified", "published"] = "stratified"
    """stratified (same train fraction in every class), or published (same draws as the papers' code)."""
    min_samples: Count | None = None
    """Least number of samples per client (10; published: 40); draws are repeated until all have it."""
    seed: Seed = 1
    """Seed of the partition alone, so that runs with different seeds can share one split."""

    @model_validator(mode="before")
    @classmethod
    def _set_name_for_file(cls, given: Any) -> Any:
        """Sets `name` to `file` where only `partition.file` is given."""
        if isinstance(given, dict) and given.get("file") is not None:
            return {"name": "file"} | given
        return given


class ModelsConfig(Section):
    group: str = "mlp4"
    """Group of architectures, assigned to clients in turn (-htc4: different heads), or one architecture."""
    list: Names | None = Field(default=None, min_length=1)
    """Architectures by name or import path (package.module:function), instead of a group."""
    weights: Weights | None = None
    """Number of clients per turn for each architecture of the list; default: one each."""
    head: Literal["linear", "mlp512", "mlp256", "mlp128", "htc4", "unit"] = "linear"
    """Head: linear; mlp…: a hidden layer of that size; htc4: all four in turn; unit: normalises features."""
    features: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Number d of features, which prototypes have too, equal for all clients (images 512, other data 32)."""
    pretrained: dict[str, str] = Field(default_factory=dict)
    """By architecture: a file of weights, or the name of torchvision weights in the local cache."""
    same_start: bool = False
    """Whether clients of the same architecture start from the same parameters."""
    style: Literal["default", "published"] = "default"
    """published: networks as in the papers' code, as far as they differ; docs/models.md lists these."""


def _check_participation(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a ratio (0 < ratio ≤ 1.0) or a whole number of clients")
    if isinstance(value, float) and not 0 < value <= 1:
        raise ValueError("a ratio must be above 0 and at most 1.0")
    if isinstance(value, int) and value < 1:
        raise ValueError("a number of clients must be at least 1")
    return value


class FederationConfig(Section):
    clients: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Number of clients."""
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 25
    """Number of rounds."""
    participation: Annotated[int | float, BeforeValidator(_check_participation)] = 1.0
    """Clients per round: a ratio (1.0 = all; at least one client) or a whole number (1 = one client)."""

    @property
    def per_round(self) -> int:
        """Number of participants per round; a ratio is rounded half up."""
        if isinstance(self.participation, int):
            return self.participation
        return max(1, int(self.participation * self.clients + 0.5))


class LogConfig(Section):
    evaluate_every: Count = 1
    """Rounds between evaluations of all clients; the last round is always evaluated."""
    evaluate_clients: Count | None = None
    """Number of clients that are evaluated, a sample that the seed fixes for all rounds; unset: all."""
    prototypes_every: Count = 10
    """Rounds between saves of the global prototypes; the last round is always saved."""
    local_prototypes: bool = False
    """Save the clients' uploads with the global prototypes (clients × K × d floats each time)."""
    distances: bool = False
    """Save the pairwise distances of every thomson iteration with the global prototypes."""
    train_accuracy: bool = False
    """Evaluate all clients on their training samples too: one more pass over them per evaluated round."""
    features_at: list[Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default_factory=list)
    """Rounds (from 1) after which test features are saved, as [10, 50, 75, 100]; they are evaluated too."""
    features_per_class: Count = 50
    """Most test samples of each class, over all clients together, whose features are saved."""


Threads = Annotated[int, Field(ge=1, le=1024)]


class RuntimeConfig(Section):
    placement: Literal["pool", "pinned"] = "pool"
    """pool: ranks that share a device take clients one by one; pinned: each client stays on one rank."""
    arena: Literal["auto", "shared", "mapped", "private"] = "auto"
    """Memory for client states: shared, mapped (a file), private (implies pinned); auto: first that fits."""
    pretend_nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Treat every node as this many, to try communication between nodes on one machine."""
    stall_minutes: Annotated[float, Field(ge=0)] = 0.0
    """Abort and name the ranks if some finish no client for so long while others wait; 0: never."""
    threads: Threads = 1
    """Threads of each rank; changes the last bits of results."""
    server_threads: Threads | None = None
    """Threads of rank 0 while it aggregates and refines; unset: as threads. Changes the last bits too."""
    device: Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")] = "auto"
    """Type of device for networks: cpu, cuda (ROCm too), xpu, mps …; auto: an accelerator if there is one."""
    device_memory: Share = 0.5
    """Share of an accelerator's free memory for data and recently trained clients; its ranks divide it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the clients' networks; the server aggregates in float64."""
    step: Literal["auto", "direct", "plain"] = "auto"
    """direct: layers update their weights in the backward pass; plain: torch's way; auto: direct on CPUs."""
    graphs: bool = False
    """On GPUs, record a client's training step and replay it for every batch (CUDA graphs)."""
    inference_batch: Count = 256
    """Samples per forward pass outside training; changes the last bits of results."""
    checkpoint_minutes: Annotated[float, Field(ge=0, le=1e6)] = 10.0
    """Minutes between checkpoints; 0: only at the end, on a stop, or by checkpoint_rounds."""
    checkpoint_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Rounds between checkpoints; 0: only by checkpoint_minutes."""
    checkpoint_disk: Annotated[float, Field(ge=2, le=1e6)] = 2.5
    """Most that a run's checkpoints take on disk, ÷ the state of all clients; 2: each saves all of it."""
    walltime_minutes: Literal["auto", "off"] | Annotated[float, Field(gt=0, le=1e7)] = "auto"
    """Time limit after which a run stops gracefully; auto: the limit of the Slurm job; off: none."""


class Config(Section):
    seed: Seed = 0
    """Seed of every random choice except the partition."""
    data: DataConfig = Field(default_factory=DataConfig)
    partition: PartitionConfig = PartitionConfig()
    models: ModelsConfig = ModelsConfig()
    train: TrainConfig = TrainConfig()
    method: MethodConfig = MethodConfig()
    federation: FederationConfig = FederationConfig()
    system: SystemConfig = SystemConfig()
    log: LogConfig = LogConfig()
    runtime: RuntimeConfig = RuntimeConfig()

    @model_validator(mode="after")
    def _size_built_in_data(self) -> Config:
        """Sets data.samples_per_class where it is not given: built-in data grow with the clients."""
        object.__setattr__(self, "data", sized(self.data, self.federation.clients))  # frozen for all others
        return self

    @model_validator(mode="after")
    def _check_combinations(self) -> Config:
        """Raises ValueError for values that are valid alone but not together."""
        number, clients = self.federation.participation, self.federation.clients
        if isinstance(number, int) and number > clients:
            raise ValueError(f"federation.participation = {number}: more than federation.clients = {clients}")
        if self.system.problem:
            raise ValueError(self.system.problem)
        if self.federation.per_round + (extra := self.system.extra) > clients and extra:
            raise ValueError(
                f"system.extra = {extra}: federation.participation = {number} and {extra} more are more than "
                f"federation.clients = {clients}"
            )
        if (evaluated := self.log.evaluate_clients) is not None and evaluated > clients:
            raise ValueError(f"log.evaluate_clients = {evaluated}: more than federation.clients = {clients}")
        if evaluated is not None and self.log.features_at:
            raise ValueError(
                "log.features_at: needs test features of all clients, unset log.evaluate_clients"
            )
        if self.models.list is not None and "group" in self.models.model_fields_set:
            raise ValueError("models.list and models.group: give one of them, not both")
        if self.models.weights is not None and len(self.models.weights) != len(self.models.list or []):
            raise ValueError("models.weights: must have as many numbers as models.list has names")
        if self.runtime.step == "direct" and self.runtime.precision != "float32":
            raise ValueError("runtime.step = 'direct': only with runtime.precision = 'float32'")
        if self.runtime.step == "direct" and self.train.clip_norm:
            raise ValueError(f"runtime.step = 'direct': {NO_CLIPPING} (train.clip_norm = 0.0)")
        if self.runtime.graphs and self.runtime.device == "cpu":
            raise ValueError("runtime.graphs = true: only on GPUs, runtime.device is 'cpu'")
        if self.runtime.graphs and self.train.optimizer != "sgd":
            raise ValueError("runtime.graphs = true: only with train.optimizer = 'sgd'")
        train = self.train
        if train.momentum and train.optimizer != "sgd":
            raise ValueError(f"train.momentum = {train.momentum}: {train.optimizer} has its own, set 0.0")
        if train.lr_schedule != "constant" and train.lr_rounds is None:
            raise ValueError(f"train.lr_schedule = {train.lr_schedule!r}: needs train.lr_rounds")
        if train.lr_schedule == "cosine" and train.lr_min > train.lr:
            raise ValueError(f"train.lr_min = {train.lr_min}: must not be above train.lr = {train.lr}")
        partition = self.partition
        if (partition.file is not None) != (partition.name == "file"):
            raise ValueError(
                f"partition.name = {partition.name!r}: 'file' and the key partition.file go together"
            )
        if partition.style == "published" and partition.name not in ("dirichlet", "pathological"):
            raise ValueError(
                "partition.style = 'published': only dirichlet and pathological have it, "
                f"not {partition.name}"
            )
        if partition.unlabelled and partition.name != "nway_kshot":
            raise ValueError(
                f"partition.unlabelled = {partition.unlabelled}: only nway_kshot has unlabelled samples"
            )
        return self

    def evaluates(self, round_: int) -> bool:
        """Returns whether all clients are evaluated after this round (counted from 0)."""
        return self._due(round_, self.log.evaluate_every) or self.saves_features(round_)

    def saves_features(self, round_: int) -> bool:
        """Returns whether the log saves test features of this round (counted from 0)."""
        return round_ + 1 in self.log.features_at

    def saves_prototypes(self, round_: int) -> bool:
        """Returns whether the log saves the global prototypes of this round (counted from 0)."""
        return self._due(round_, self.log.prototypes_every)

    def _due(self, round_: int, every: int) -> bool:
        """Returns whether a round is a multiple of `every`, or the last round."""
        return (round_ + 1) % every == 0 or round_ + 1 == self.federation.rounds
