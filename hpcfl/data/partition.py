"""Partitions: from labels and a seed to each client's train and test indices. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data import partitioners, published
from hpcfl.data.kshot import nway_kshot
from hpcfl.data.split_file import read_split
from hpcfl.errors import BadInput
from hpcfl.utils.seeds import generator

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
    settings: PartitionConfig,
    train: int | None = None,
    writer: np.ndarray | None = None,
) -> list[Split]:
    """Returns the split of every client; `train` samples, all if not given, are the dataset's train part."""
    parts: Sequence[tuple[np.ndarray, ...]]
    if settings.file is not None:
        parts = read_split(settings.file, len(y), clients)
    elif settings.name == "nway_kshot":
        rng = generator(settings.seed, "partition")
        parts = nway_kshot(y, len(y) if train is None else train, clients, settings, rng)
    elif settings.style == "published":
        parts = published.partition(y, clients, settings)
    else:
        parts = _own(y, clients, settings, writer)
    splits = [Split(*part) for part in parts]
    for client, split in enumerate(splits):
        for name, part in (("train", split.train), ("test", split.test)):
            if len(part) == 0:
                raise BadInput(
                    f"client {client} has no {name} samples after the partition "
                    f"({len(split.train)} train, {len(split.test)} test); "
                    + (
                        "partition.file gives it none"
                        if settings.file
                        else "fewer federation.clients, a larger partition.min_samples or another "
                        "partition.train_fraction may help"
                    )
                )
    return splits


def _own(
    y: np.ndarray, clients: int, settings: PartitionConfig, writer: np.ndarray | None
) -> list[tuple[np.ndarray, np.ndarray]]:
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
            parts = partitioners.dirichlet(y, clients, settings.alpha, least, rng)
        case "pathological":
            parts = partitioners.pathological(y, clients, settings.classes_per_client, least, rng)
        case _:
            parts = partitioners.natural(writer, clients, least, rng)
    return [partitioners.stratified(part, y, settings.train_fraction, rng) for part in parts]
