"""The plan of a run: data, clients and architectures, checked before torch and MPI are loaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hpcfl.config.schema import Config
from hpcfl.data.dataset import Dataset
from hpcfl.data.load import load_dataset
from hpcfl.data.partition import Split, partition
from hpcfl.data.sources.registry import KNOWN_DATASETS
from hpcfl.errors import BadInput
from hpcfl.methods.catalogue import method_spec
from hpcfl.methods.rules import check_dims, no_iterations_reason
from hpcfl.methods.spec import MethodSpec
from hpcfl.models.registry import client_architectures
from hpcfl.utils.files import absolute_path
from hpcfl.utils.hdf5_file import open_regular


@dataclass(frozen=True)
class Client:
    """A client: its id, its architecture, and the indices of its samples in the shared dataset."""

    id: int
    architecture: str
    split: Split

    @property
    def train(self) -> np.ndarray:
        return self.split.train

    @property
    def test(self) -> np.ndarray:
        return self.split.test


@dataclass(frozen=True)
class RunPlan:
    """Everything that a run needs to know before it starts; the same on every rank."""

    config: Config
    spec: MethodSpec
    data: Dataset
    clients: tuple[Client, ...]
    class_counts_MK: np.ndarray
    """Training samples per client and class."""
    directory: Path
    """Where relative paths of the configuration begin, whatever the user's networks do to the process."""

    @property
    def dims(self) -> tuple[int, int]:
        """The shape of the prototypes: K classes and D features."""
        return self.data.classes, self.config.models.features or (512 if self.data.is_images else 32)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The distinct architectures of the clients, in order of first use."""
        return tuple(dict.fromkeys(client.architecture for client in self.clients))

    @property
    def has_characters(self) -> bool:
        """Whether the images are letters or digits, which must not be flipped."""
        known = KNOWN_DATASETS.get(self.config.data.name)
        return known is not None and known.characters

    @property
    def unowned(self) -> list[int]:
        """The classes that no client trains on."""
        return np.flatnonzero(self.class_counts_MK.sum(0) == 0).tolist()

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Checksums of data, split and pretrained files, which identify a run beside its configuration."""
        digest = hashlib.blake2b(digest_size=16)
        for client in self.clients:
            for part in (client.split.train, client.split.test, client.split.unlabelled):
                digest.update(f"{len(part)} ".encode() + part.astype("<i8").tobytes())
        checksums = {"data": self.data.checksum, "split": digest.hexdigest()}
        for name, weights in self.config.models.pretrained.items():
            if (path := self.directory / weights).exists():
                with open(open_regular(path), "rb") as file:
                    checksums[f"pretrained_{name}"] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
        return checksums


def plan_run(config: Config) -> RunPlan:
    """Returns the run that a configuration describes, or raises BadInput."""
    method = method_spec(config.method, config.data.name)
    names = client_architectures(config.models)
    data = load_dataset(config.data)
    if config.train.augment and not data.is_images:
        raise BadInput(f"train.augment = {config.train.augment}: {config.data.name} has no images")
    splits = partition(data.y, config.federation.clients, config.partition, data.num_train, data.writer_ids)
    clients = tuple(Client(i, names[i % len(names)], split) for i, split in enumerate(splits))
    counts_MK = np.stack([np.bincount(data.y[client.train], minlength=data.classes) for client in clients])
    plan = RunPlan(config, method, data, clients, counts_MK, absolute_path(Path()))
    check_dims(method, *plan.dims)
    if method.semi and not any(len(client.split.unlabelled) for client in clients):
        raise BadInput(
            f"method.semi = {method.semi}: no client has unlabelled samples; "
            "set partition.name = 'nway_kshot' and partition.unlabelled, or method.semi = 0"
        )
    if config.log.distances and (reason := no_iterations_reason(method, *plan.dims)):
        raise BadInput(f"log.distances = true: {reason}")
    try:
        plan.checksums  # noqa: B018  # computed now, where an unreadable file is still reported as bad input
    except OSError as error:
        raise BadInput(f"models.pretrained: cannot read {error.filename}: {error.strerror}") from None
    return plan
