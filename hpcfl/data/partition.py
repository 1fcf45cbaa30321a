"""Partitions a dataset among clients: from labels and a seed to each client's sample indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data import partitioners, published
from hpcfl.data.kshot import nway_kshot
from hpcfl.data.split_file import read_split
from hpcfl.data.working_values import working_values
from hpcfl.errors import BadInput
from hpcfl.utils.seeds import generator

MIN_SAMPLES = 10
"""Default of `partition.min_samples`."""


@dataclass(frozen=True)
class Split:
    """Indices of one client's samples in the dataset."""

    train: np.ndarray
    test: np.ndarray
    unlabelled: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    validation: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def partition(
    y: np.ndarray,
    clients: int,
    settings: PartitionConfig,
    num_train: int | None = None,
    writer_ids: np.ndarray | None = None,
) -> list[Split]:
    """Returns the split of every client; the first `num_train` samples, by default all, are train samples.

    Where a Dirichlet split is not possible, the error names values that work.
    """

    def attempt(settings: PartitionConfig, clients: int) -> list[Split]:
        return _partition(y, clients, settings, num_train, writer_ids)

    try:
        return attempt(settings, clients)
    except BadInput as problem:
        if settings.name != "dirichlet":
            raise
        default = published.MIN_SAMPLES if settings.style == "published" else MIN_SAMPLES
        advice = working_values(settings, clients, settings.min_samples or default, attempt)
        raise BadInput(f"{problem}{advice}") from None


def _partition(
    y: np.ndarray,
    clients: int,
    settings: PartitionConfig,
    num_train: int | None,
    writer_ids: np.ndarray | None,
) -> list[Split]:
    """Returns the split of every client, or raises BadInput if it is not possible."""
    parts: Sequence[tuple[np.ndarray, ...]]
    if settings.file is not None:
        parts = read_split(settings.file, len(y), clients)
    elif settings.name == "nway_kshot":
        rng = generator(settings.seed, "partition")
        parts = nway_kshot(y, len(y) if num_train is None else num_train, clients, settings, rng)
    elif settings.style == "published":
        parts = published.published_partition(y, clients, settings)
    else:
        parts = _stratified(y, clients, settings, writer_ids)
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
    return _with_validation(splits, y, settings) if settings.validation_fraction else splits


def _with_validation(splits: Sequence[Split], y: np.ndarray, settings: PartitionConfig) -> list[Split]:
    """Returns splits in which a share of each client's training samples is for validation.

    They are drawn last and by a key of their own, so that test samples are those without validation. The
    same share of each class is taken, but no class loses its last training sample.
    """
    fraction = settings.validation_fraction
    if any(len(split.validation) for split in splits):
        raise BadInput(
            f"partition.validation_fraction = {fraction}: partition.file has validation samples already"
        )
    found = []
    for client, split in enumerate(splits):
        rng = generator(settings.seed, "validation", client)
        _, validation = partitioners.stratified_split(split.train, y, 1 - fraction, rng)
        train = split.train[~np.isin(split.train, validation)]  # in the order that it had
        found.append(replace(split, train=train, validation=validation))
    if not any(len(split.validation) for split in found):
        raise BadInput(
            f"partition.validation_fraction = {fraction}: leaves every client without validation samples"
        )
    return found


def _stratified(
    y: np.ndarray, clients: int, settings: PartitionConfig, writer_ids: np.ndarray | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns every client's train and test samples, with the same train fraction of each class."""
    rng = generator(settings.seed, "partition")
    min_samples = settings.min_samples or MIN_SAMPLES
    if len(y) < clients * min_samples:
        raise BadInput(
            f"federation.clients = {clients}: {len(y)} samples do not give every client the "
            f"partition.min_samples = {min_samples}"
        )
    parts: Sequence[np.ndarray]
    match settings.name:
        case "iid":
            parts = np.array_split(rng.permutation(len(y)), clients)
        case "dirichlet":
            parts = partitioners.dirichlet(y, clients, settings.alpha, min_samples, rng, redraw_clients=True)
        case "pathological":
            parts = partitioners.pathological(y, clients, settings.classes_per_client, min_samples, rng)
        case _:
            parts = partitioners.natural(writer_ids, clients, min_samples, rng)
    return [partitioners.stratified_split(part, y, settings.train_fraction, rng) for part in parts]
