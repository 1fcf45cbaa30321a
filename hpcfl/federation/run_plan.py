"""The plan of a run: data, clients and architectures, checked before torch and MPI are loaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hpcfl.config.evaluated import evaluated_clients
from hpcfl.config.schema import Config
from hpcfl.config.train import NO_CLIPPING, TrainConfig
from hpcfl.data.dataset import Dataset
from hpcfl.data.load import load_dataset
from hpcfl.data.partition import Split, partition
from hpcfl.data.sources.registry import KNOWN_DATASETS
from hpcfl.errors import BadInput, unknown
from hpcfl.federation.sample_checks import check_batches, check_samples
from hpcfl.methods.catalogue import CATALOGUE, check_method, find_method, method_spec
from hpcfl.methods.parts import PARTS
from hpcfl.methods.plugins import user_path
from hpcfl.methods.spec import AUXILIARY_CHOICES, AlgorithmSpec
from hpcfl.models.registry import (
    ARCHITECTURES,
    HEADS,
    client_architectures,
    find_architecture,
    is_user_defined,
    split_name,
)
from hpcfl.system.system import System, make_system
from hpcfl.utils.files import absolute_path
from hpcfl.utils.hdf5_file import open_regular
from hpcfl.utils.user_code import source_checksums


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

    @property
    def validation(self) -> np.ndarray:
        return self.split.validation


@dataclass(frozen=True)
class RunPlan:
    """Everything that a run needs to know before it starts; the same on every rank."""

    config: Config
    spec: AlgorithmSpec
    data: Dataset
    clients: tuple[Client, ...]
    class_counts_MK: np.ndarray
    """Training samples per client and class."""
    directory: Path
    """Where relative paths of the configuration begin, whatever the user's networks do to the process."""

    @property
    def dims(self) -> tuple[int, int]:
        """The numbers of classes and features, K and D."""
        return self.data.classes, self.config.models.features or (512 if len(self.data.shape) == 3 else 32)

    @property
    def train(self) -> TrainConfig:
        """The settings of the clients' training; of the run's and the algorithm's clipping the smaller."""
        norms = [norm for norm in (self.config.train.clip_norm, self.spec.clip_norm) if norm]
        return self.config.train.model_copy(update={"clip_norm": min(norms, default=0.0)})

    def samples_per_epoch(self, client: int) -> int:
        """Returns how many samples a client trains on in an epoch."""
        samples, settings = len(self.clients[client].train), self.config.train
        return samples - samples % settings.batch_size if settings.drop_last else samples

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """The distinct architectures of the clients, in order of first use."""
        return tuple(dict.fromkeys(client.architecture for client in self.clients))

    @property
    def has_characters(self) -> bool:
        """Whether the images are letters or digits, which must not be flipped."""
        known = KNOWN_DATASETS.get(self.data.original or self.config.data.name)
        return known is not None and known.characters

    @cached_property
    def has_validation(self) -> bool:
        """Whether there are validation samples."""
        return any(len(client.validation) for client in self.clients)

    @property
    def unowned(self) -> list[int]:
        """The classes that no client trains on."""
        return np.flatnonzero(self.class_counts_MK.sum(0) == 0).tolist()

    @cached_property
    def evaluated_M(self) -> np.ndarray:
        """Whether each client is evaluated."""
        return evaluated_clients(self.config)

    @cached_property
    def system(self) -> System | None:
        """The devices that are simulated; None: the run has no virtual clock."""
        architectures = [client.architecture for client in self.clients]
        return make_system(self.config.system, self.config.seed, architectures)

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Checksums of data, split and pretrained files, which identify a run beside its configuration."""
        digest = hashlib.blake2b(digest_size=16)
        for client in self.clients:
            split = client.split
            parts = (split.train, split.test, split.unlabelled)
            for part in (*parts, split.validation) if len(split.validation) else parts:
                digest.update(f"{len(part)} ".encode() + part.astype("<i8").tobytes())
        checksums = {"data": self.data.checksum, "split": digest.hexdigest()}
        if self.data.original not in ("", self.config.data.name):
            checksums["original"] = self.data.original  # γ, for one, depends on it
        files = {f"pretrained_{name}": file for name, file in self.config.models.pretrained.items()}
        files |= {f"system_{name}": getattr(self.config.system, name) or "" for name in ("table", "trace")}
        for name, given in files.items():
            if given and (path := self.directory / given).exists():
                with open(open_regular(path), "rb") as file:
                    checksums[name] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
        return checksums | code_checksums(self.config)


CODE = "code_"
"""The names of the checksums of code begin with this; the name of the module follows."""


def code_checksums(config: Config) -> dict[str, str]:
    """Returns checksums of the user's own code: networks, algorithm, parts, and the modules that they import.

    Nothing is imported for it.
    """
    method = config.method
    names = {name: PARTS[name] for name in PARTS} | {"name": CATALOGUE}
    chosen = [(getattr(method, slot), known) for slot, known in names.items()]
    paths = [user_path(name) for name, known in chosen if name is not None and name not in known]
    networks = [split_name(name)[0] for name in client_architectures(config.models) if is_user_defined(name)]
    checksums = source_checksums([*networks, *(path for path in paths if path)])
    return {f"{CODE}{module}": checksum for module, checksum in checksums.items()}


def plan_run(config: Config, data: Dataset | None = None) -> RunPlan:
    """Returns the run that a configuration describes, or raises BadInput; `data`: instead of the named."""
    config = check_method(config)
    names = client_architectures(config.models, find_method(config.method.name).head_kind)
    data = data or load_dataset(config.data)
    method = method_spec(config.method, data.original or config.data.name)
    check_samples(config, data, names)
    if config.runtime.step == "direct" and method.clip_norm:
        raise BadInput(f"runtime.step = 'direct': {NO_CLIPPING} (method.clip_norm = 0.0)")
    splits = partition(data.y, config.federation.clients, config.partition, data.num_train, data.writer_ids)
    check_batches(config, splits)
    clients = tuple(Client(i, names[i % len(names)], split) for i, split in enumerate(splits))
    counts_MK = np.stack([np.bincount(data.y[client.train], minlength=data.classes) for client in clients])
    plan = RunPlan(config, method, data, clients, counts_MK, absolute_path(Path()))
    method.check(plan)
    plan.system  # noqa: B018  # read now, so that bad files are reported before torch is loaded
    _check_auxiliary(plan)
    for name in plan.architectures:
        if is_user_defined(name):
            find_architecture(split_name(name)[0])
    try:
        plan.checksums  # noqa: B018  # computed now, where an unreadable file is still reported as bad input
    except OSError as error:
        raise BadInput(f"models.pretrained: cannot read {error.filename}: {error.strerror}") from None
    return plan


def _check_auxiliary(plan: RunPlan) -> None:
    """Raises BadInput if a method's auxiliary network is neither registered nor a client's."""
    if not plan.spec.has_auxiliary:
        return
    chosen = plan.spec.slots()["auxiliary"]
    extractor, head = split_name(chosen)
    is_registered = extractor in ARCHITECTURES and head in HEADS
    if not is_registered and chosen not in (*AUXILIARY_CHOICES, *plan.architectures):
        known = [*AUXILIARY_CHOICES, *plan.architectures, *ARCHITECTURES]
        raise unknown("method.auxiliary", chosen, dict.fromkeys(known))
