"""The tasks that simulators are compared on, and the files that hpcfl and the other programs read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import tomli_w

from hpcfl.bench.peers.programs.task import Task
from hpcfl.config.loading import parse_config
from hpcfl.config.schema import Config
from hpcfl.data.dataset import Dataset
from hpcfl.data.load import BUILT_IN, load_dataset
from hpcfl.data.prepared_file import is_prepared, prepared_path
from hpcfl.data.split_file import write_split
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.models.groups import GROUPS

PROGRAMS = "hpcfl.bench.peers.programs.task"
LEAST_ROUNDS = 4
"""The first and the last round are not counted."""


@dataclass(frozen=True)
class Workload:
    """A task, and the simulators that can do it."""

    method: str
    says: str
    peers: tuple[str, ...]
    datasets: tuple[str, ...]
    """By preference: the first that is prepared is used."""
    network: str
    """A function of programs/task.py, or one of hpcfl's groups, which the others' programs know by name."""
    features: int
    """0: as many as a sample has pixels."""
    clients: int
    participants: int
    samples: int
    """Training samples of a client."""
    rounds: int
    lr: float
    tests: int = 10
    """Test samples of a client; nobody evaluates in the rounds that count."""
    batch_size: int = 10
    weight: float = 1.0
    """Of the prototype loss."""
    published_split: bool = False
    """The papers' Dirichlet(0.1) split of all samples; `samples` and `tests` then mean nothing."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Settings of further runs of hpcfl, by name."""


CNN = Workload(
    method="fedavg",
    says="FedAvg, conv32–conv64–dense128, 50 of 1000 clients of 50 samples (pfl-research's CIFAR-10 set-up)",
    peers=("flower", "fluke", "pfl"),
    datasets=("cifar10", "fmnist"),
    network="simple_cnn",
    features=128,
    clients=1000,
    participants=50,
    samples=50,
    rounds=8,
    lr=0.05,
)
LOGISTIC = replace(
    CNN,
    says="FedAvg, logistic regression, 10 of 1000 clients of 60 samples (FLUTE's comparison on CPUs)",
    datasets=("mnist", "fmnist"),
    network="pixels",
    features=0,
    participants=10,
    samples=60,
    rounds=60,
    lr=0.03,
)
FEDPROTO = replace(
    CNN,
    method="fedproto",
    says="FedProto, the same network and samples, 50 of 100 clients, each with a network of its own",
    peers=("fluke", "htfllib"),
    clients=100,
)
FEDTGP = replace(
    FEDPROTO,
    method="fedtgp",
    says="FedTGP, likewise, 100 epochs on the server",
    peers=("htfllib",),
)
HTCNN8 = Workload(
    method="fedproto",
    says="FedProto with the eight CNNs of FedTGP's Table 9 (htcnn8), Dirichlet(0.1) as published",
    peers=("htfllib",),
    datasets=("fmnist",),
    network="htcnn8",
    features=512,
    clients=20,
    participants=20,
    samples=0,
    rounds=4,
    lr=0.01,
    batch_size=32,
    weight=10.0,
    published_split=True,
    variants={"separate prototype pass": ("method.prototypes=eval",)},
)
WORKLOADS = {"cnn": CNN, "logistic": LOGISTIC, "fedproto": FEDPROTO, "fedtgp": FEDTGP, "htcnn8": HTCNN8}
SERVER_EPOCHS = 100


@dataclass(frozen=True)
class Prepared:
    """Where the files of a workload are."""

    workload: Workload
    config: Path
    task: Path
    dataset: str
    rounds: int


def choose_dataset(workload: Workload, name: str | None, root: str) -> str:
    """Returns the given dataset, or the first of the workload's that is prepared."""
    if name:
        return name
    for each in workload.datasets:
        if is_prepared(prepared_path(root, each)):
            return each
    raise BadInput(
        f"no data: prepare {' or '.join(workload.datasets)} in {root} (hpcfl data prepare), or name another "
        "dataset of images by --data"
    )


def prepare(workload: Workload, dataset: str, root: str, workers: int, directory: Path) -> Prepared:
    """Writes the split, hpcfl's configuration, the other programs' samples and their task."""
    first = parse_config(tomli_w.dumps({"data": {"name": dataset, "root": root}}))
    data = load_dataset(first.data)
    if not data.is_images:
        raise BadInput(f"--data {dataset}: its samples are no images, which the networks here take")
    split = (
        _published_split(workload, first, data) if workload.published_split else _split(workload, len(data.y))
    )
    write_split(directory / "split.npz", split)
    features = workload.features or int(np.prod(data.shape))
    text = _config_text(workload, features, dataset, root, directory / "split.npz")
    config = parse_config(text)
    _write_samples(data, [train for train, _ in split], directory)
    task = Task(
        method=workload.method,
        network=workload.network,
        features=features,
        classes=data.classes,
        shape=data.shape,
        data=str(directory),
        clients=workload.clients,
        participants=workload.participants,
        rounds=workload.rounds,
        batch_size=config.train.batch_size,
        epochs=config.train.epochs,
        lr=config.train.lr,
        weight=workload.weight,
        server_epochs=SERVER_EPOCHS,
        workers=workers,
    )
    paths = directory / "hpcfl.toml", directory / "task.json"
    paths[0].write_text(text)
    paths[1].write_text(json.dumps(asdict(task)))
    return Prepared(workload, *paths, describe_data(config, data), workload.rounds)


def _split(workload: Workload, samples: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the training and the test samples of every client, drawn at random without repetition."""
    each = workload.samples + workload.tests
    if workload.clients * each > samples:
        raise BadInput(
            f"{workload.clients} clients need {workload.clients * each} samples, {each} each; the data has "
            f"{samples}: give fewer by --clients"
        )
    order = np.random.default_rng(0).permutation(samples)[: workload.clients * each]
    return [(part[: workload.samples], part[workload.samples :]) for part in order.reshape(-1, each)]


def _published_split(
    workload: Workload, config: Config, data: Dataset
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the training and the test samples of every client, as the papers' generator divides them."""
    federation = config.federation.model_copy(update={"clients": workload.clients})
    partition = config.partition.model_copy(update={"style": "published", "alpha": 0.1})
    plan = plan_run(config.model_copy(update={"federation": federation, "partition": partition}), data)
    return [(client.train, client.test) for client in plan.clients]


def _config_text(workload: Workload, features: int, dataset: str, root: str, split: Path) -> str:
    """Returns hpcfl's configuration: what a user writes."""
    method: dict[str, object] = {"name": workload.method}
    if workload.method == "fedproto":
        method |= {"weight": workload.weight, "prototypes": "running"}  # as the others compute prototypes
    if workload.method == "fedtgp":
        method |= {"weight": workload.weight, "server_epochs": SERVER_EPOCHS}
    own = workload.network not in GROUPS
    networks = {"list": [f"{PROGRAMS}:{workload.network}"]} if own else {"group": workload.network}
    tables = {
        "data": {"name": dataset, "root": root},
        "partition": {"file": str(split)},
        "models": networks | {"features": features},
        "train": {"lr": workload.lr, "batch_size": workload.batch_size, "epochs": 1},
        "method": method,
        "federation": {
            "clients": workload.clients,
            "participation": workload.participants,
            "rounds": workload.rounds,
        },
        "log": {"evaluate_every": workload.rounds},
        "runtime": {"step": "direct"},
    }
    return tomli_w.dumps(tables)


def _write_samples(data: Dataset, trains: list[np.ndarray], directory: Path) -> None:
    """Writes the clients' training samples, normalised as hpcfl does it."""
    index = np.concatenate(trains)
    mean_C, std_C = data.mean_C.astype(np.float32), data.std_C.astype(np.float32)
    x_NHWC = (data.x[index] / np.float32(255) - mean_C) / std_C
    np.save(directory / "x.npy", np.ascontiguousarray(x_NHWC.transpose(0, 3, 1, 2)))
    np.save(directory / "y.npy", data.y[index])
    np.save(directory / "first.npy", np.cumsum([0, *map(len, trains)]))


def describe_data(config: Config, data: Dataset) -> str:
    """Returns the name of a dataset and the size of its samples."""
    generated = " (generated)" if config.data.name in BUILT_IN else ""
    return f"{config.data.name}{generated}, {'×'.join(map(str, data.shape))}"
