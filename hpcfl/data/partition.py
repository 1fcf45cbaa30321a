"""Partitions: from labels and a seed to each client's train and test indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcfl.config import Partition
from hpcfl.errors import BadInput
from hpcfl.seeds import generator

TRIES = 1000


@dataclass(frozen=True)
class Split:
    """One client's samples: indices into the dataset."""

    train: np.ndarray
    test: np.ndarray


def partition(y: np.ndarray, clients: int, settings: Partition) -> list[Split]:
    """Returns the split of every client; each sample belongs to exactly one of them."""
    if len(y) < clients * settings.min_samples:
        raise BadInput(
            f"federation.clients = {clients}: {len(y)} samples do not give every client the "
            f"partition.min_samples = {settings.min_samples}"
        )
    deal = {"iid": _iid, "dirichlet": _dirichlet}[settings.name]
    rng = generator(settings.seed, "partition")
    splits = [_stratified(part, y, settings.train_fraction, rng) for part in deal(y, clients, settings, rng)]
    for client, split in enumerate(splits):
        for name, part in (("train", split.train), ("test", split.test)):
            if len(part) == 0:
                raise BadInput(
                    f"client {client} has no {name} samples after the partition; raise partition.min_samples "
                    f"(now {settings.min_samples}) or change partition.train_fraction"
                )
    return splits


def _iid(y: np.ndarray, clients: int, settings: Partition, rng: np.random.Generator) -> list[np.ndarray]:
    return np.array_split(rng.permutation(len(y)), clients)


def _dirichlet(
    y: np.ndarray, clients: int, settings: Partition, rng: np.random.Generator
) -> list[np.ndarray]:
    """Each class is dealt by a Dirichlet draw; a client that holds its even share takes no more.

    That rule, and drawing again until every client has enough, is the papers' common practice.
    """
    best = 0
    for _ in range(TRIES):
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        held = np.zeros(clients, dtype=np.int64)
        for k in range(int(y.max()) + 1):
            indices = rng.permutation(np.flatnonzero(y == k))
            share = rng.dirichlet(np.full(clients, settings.alpha)) * (held < len(y) / clients)
            if not share.sum() > 0:  # α so small that every share left is zero
                break
            cuts = (np.cumsum(share / share.sum()) * len(indices)).astype(np.int64)[:-1]
            for client, part in enumerate(np.split(indices, cuts)):
                parts[client].append(part)
                held[client] += len(part)
        else:
            best = max(best, int(held.min()))
            if held.min() >= settings.min_samples:
                return [np.concatenate(part) for part in parts]
    raise BadInput(
        f"partition.alpha = {settings.alpha}: none of {TRIES} draws gave each of {clients} clients "
        f"partition.min_samples = {settings.min_samples} samples; the best left one with {best}"
    )


def _stratified(part: np.ndarray, y: np.ndarray, fraction: float, rng: np.random.Generator) -> Split:
    """Returns the client's split, class by class; a class of one or two samples only trains."""
    train, test = [], []
    for k in np.unique(y[part]):
        indices = rng.permutation(part[y[part] == k])
        cut = max(1, int(fraction * len(indices) + 0.5))
        train.append(indices[:cut])
        test.append(indices[cut:])
    return Split(np.sort(np.concatenate(train)), np.sort(np.concatenate(test)))
