"""The n-way k-shot partition (FedProto; FedSAP, App. A): few classes per client, few samples per class."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data.partitioners import class_owners, stratified_split
from hpcfl.errors import BadInput


def nway_kshot(
    y: np.ndarray, num_train: int, clients: int, settings: PartitionConfig, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns every client's train, test and unlabelled samples.

    Client i has n_i ~ N(μ_n, σ²) classes, rounded, in 2 … K, and k_i ~ N(μ_k, σ²) training samples per class,
    rounded, at least 1. Training and unlabelled samples are train samples of the dataset, each of one client.
    A client tests on all test samples of its classes, which clients share; where the dataset has no test
    samples, some train samples are set apart first.
    """
    samples = np.arange(len(y))
    train_pool, test_pool = samples[:num_train], samples[num_train:]
    if len(test_pool) == 0:
        train_pool, test_pool = stratified_split(train_pool, y, settings.train_fraction, rng)
    classes_C = np.unique(y[train_pool])
    ways_M = np.clip(
        _rounded_normal(settings.ways, settings.deviation, clients, rng),
        min(2, len(classes_C)),
        len(classes_C),
    )
    shots_M = np.maximum(1, _rounded_normal(settings.shots, settings.deviation, clients, rng))
    owners_C = class_owners(ways_M, len(classes_C), rng)
    owns_MC = np.array([[client in owners for owners in owners_C] for client in range(clients)])
    unlabelled_MC = _spread_evenly(settings.unlabelled, owns_MC)
    train_M: list[list[np.ndarray]] = [[] for _ in range(clients)]
    unlabelled_M: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for c, (k, owners) in enumerate(zip(classes_C, owners_C, strict=True)):
        shuffled = rng.permutation(train_pool[y[train_pool] == k])
        sizes = np.concatenate([shots_M[owners], unlabelled_MC[owners, c]])
        if sizes.sum() > len(shuffled):
            raise BadInput(
                f"partition.name = 'nway_kshot': the {len(owners)} clients of class {k} ask for "
                f"{sizes.sum()} training samples, it has {len(shuffled)}; lower partition.shots, "
                "partition.ways, partition.unlabelled or federation.clients"
            )
        pieces = np.split(shuffled[: sizes.sum()], np.cumsum(sizes)[:-1]) if len(owners) else []
        train_pieces, unlabelled_pieces = pieces[: len(owners)], pieces[len(owners) :]
        for client, train, unlabelled in zip(owners, train_pieces, unlabelled_pieces, strict=True):
            train_M[client].append(train)
            unlabelled_M[client].append(unlabelled)
    return [
        (
            np.sort(np.concatenate(train_M[client])),
            test_pool[np.isin(y[test_pool], classes_C[owns_MC[client]])],
            np.sort(np.concatenate(unlabelled_M[client])),
        )
        for client in range(clients)
    ]


def _rounded_normal(mean: float, deviation: float, number: int, rng: np.random.Generator) -> np.ndarray:
    return np.rint(rng.normal(mean, deviation, number)).astype(np.int64)


def _spread_evenly(total: int, owns_MC: np.ndarray) -> np.ndarray:
    """Returns each client's `total` split evenly over its classes; the first classes take the remainder."""
    number_M1 = owns_MC.sum(1, keepdims=True)
    rank_MC = owns_MC.cumsum(1) - 1
    return np.where(owns_MC, total // number_M1 + (rank_MC < total % number_M1), 0)
