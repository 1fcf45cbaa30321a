"""Partitions: from labels and a seed to each client's train and test indices. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hpcfl.config import Partition
from hpcfl.data import deal, published
from hpcfl.data.kshot import nway_kshot
from hpcfl.data.splitfile import read_split
from hpcfl.errors import BadInput
from hpcfl.seeds import generator

MIN_SAMPLES = 10


@dataclass(frozen=True)
class Split:
    """One client's samples: indices into the dataset."""

    train: np.ndarray
    test: np.ndarray
    unlabelled: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def partition(
    y: np.ndarray,
    clients: int,
    settings: Partition,
    train: int | None = None,
    writer: np.ndarray | None = None,
) -> list[Split]:
    """Returns the split of every client; `train` samples, all if not given, are the dataset's train part."""
    if settings.file is not None:
        splits = [Split(*parts) for parts in read_split(settings.file, len(y), clients)]
    elif settings.name == "nway_kshot":
        rng = generator(settings.seed, "partition")
        splits = [
            Split(*parts)
            for parts in nway_kshot(y, len(y) if train is None else train, clients, settings, rng)
        ]
    elif settings.style == "published":
        splits = [Split(*parts) for parts in published.partition(y, clients, settings)]
    else:
        splits = _own(y, clients, settings, writer)
    for client, split in enumerate(splits):
        for name, part in (("train", split.train), ("test", split.test)):
            if len(part) == 0:
                raise BadInput(
                    f"client {client} has no {name} samples after the partition; raise partition.min_samples "
                    "or change partition.train_fraction"
                )
    return splits


def _own(y: np.ndarray, clients: int, settings: Partition, writer: np.ndarray | None) -> list[Split]:
    """Returns what each client is dealt, its classes split alike into train and test."""
    rng = generator(settings.seed, "partition")
    least = settings.min_samples or MIN_SAMPLES
    if len(y) < clients * least:
        raise BadInput(
            f"federation.clients = {clients}: {len(y)} samples do not give every client the "
            f"partition.min_samples = {least}"
        )
    parts: Sequence[np.ndarray]
    match settings.name:
        case "iid":
            parts = np.array_split(rng.permutation(len(y)), clients)
        case "dirichlet":
            parts = deal.dirichlet(y, clients, settings.alpha, least, rng)
        case "pathological":
            parts = deal.pathological(y, clients, settings.classes_per_client, least, rng)
        case _:
            parts = deal.natural(writer, clients, least, rng)
    return [Split(*deal.stratified(part, y, settings.train_fraction, rng)) for part in parts]
