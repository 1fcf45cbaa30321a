"""Who takes part in a run: data, clients, architectures. Checked here, before torch and MPI are loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcfl.config import Config
from hpcfl.data.dataset import Dataset, read
from hpcfl.data.partition import partition
from hpcfl.methods.catalogue import Recipe, recipe
from hpcfl.models.registry import chosen


@dataclass(frozen=True)
class Client:
    """An id, an architecture, and indices into the shared dataset."""

    id: int
    architecture: str
    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Federation:
    """A run, planned: the same on every rank."""

    config: Config
    recipe: Recipe
    data: Dataset
    clients: tuple[Client, ...]
    class_counts_MK: np.ndarray
    """Training samples per client and class."""

    @property
    def dims(self) -> tuple[int, int]:
        """K classes and D features: the shape of the prototypes."""
        return self.data.classes, self.config.models.features

    @property
    def architectures(self) -> tuple[str, ...]:
        """The names that occur among the clients, each once, in order of first use."""
        return tuple(dict.fromkeys(client.architecture for client in self.clients))


def plan(config: Config) -> Federation:
    """Returns the run that a configuration describes, or raises BadInput."""
    method = recipe(config.method, config.data.name)
    names = chosen(config.models)
    data = read(config.data)
    splits = partition(data.y, config.federation.clients, config.partition)
    clients = tuple(
        Client(i, names[i % len(names)], split.train, split.test) for i, split in enumerate(splits)
    )
    counts_MK = np.stack([np.bincount(data.y[client.train], minlength=data.classes) for client in clients])
    return Federation(config, method, data, clients, counts_MK)
