"""n-way k-shot clients (FedProto; FedSAP, App. A): few classes, few samples of each, a common test set."""

from __future__ import annotations

import numpy as np

from hpcfl.config import Partition
from hpcfl.data.deal import stratified, who_owns
from hpcfl.errors import BadInput


def nway_kshot(
    y: np.ndarray, train: int, clients: int, settings: Partition, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns every client's train, test and unlabelled samples.

    n_i ~ N(μ_n, σ²), rounded, 2 … K; k_i ~ N(μ_k, σ²), rounded, at least 1. Training samples, and the
    unlabelled ones, come from the train part and belong to one client each. Everyone tests on those samples
    of the test part that are of its classes; where the data has no test part, one is set apart first.
    """
    classes = int(y.max()) + 1
    everything = np.arange(len(y))
    pool, common = everything[:train], everything[train:]
    if len(common) == 0:
        pool, common = stratified(pool, y, settings.train_fraction, rng)
    ways_M = np.clip(_drawn(settings.ways, settings.deviation, clients, rng), min(2, classes), classes)
    shots_M = np.maximum(1, _drawn(settings.shots, settings.deviation, clients, rng))
    owners = who_owns(ways_M, classes, rng)
    train_M: list[list[np.ndarray]] = [[] for _ in range(clients)]
    pool_M: list[list[np.ndarray]] = [[] for _ in range(clients)]
    owns_MK = np.zeros((clients, classes), dtype=bool)
    for k, mine in enumerate(owners):
        owns_MK[mine, k] = True
    extra_MK = _shared_out(settings.unlabelled, owns_MK)
    for k, mine in enumerate(owners):
        deck = rng.permutation(pool[y[pool] == k])
        needed = int(shots_M[mine].sum() + extra_MK[mine, k].sum())
        if needed > len(deck):
            raise BadInput(
                f"partition.name = 'nway_kshot': the {len(mine)} clients of class {k} ask for {needed} "
                f"training samples, it has {len(deck)}; lower partition.shots, partition.ways, "
                "partition.unlabelled or federation.clients"
            )
        for client in mine:
            train_M[client].append(deck[: shots_M[client]])
            deck = deck[shots_M[client] :]
        for client in mine:
            pool_M[client].append(deck[: extra_MK[client, k]])
            deck = deck[extra_MK[client, k] :]
    return [
        (
            np.sort(np.concatenate(train_M[client])),
            common[owns_MK[client][y[common]]],
            np.sort(np.concatenate(pool_M[client])),
        )
        for client in range(clients)
    ]


def _drawn(mean: float, deviation: float, number: int, rng: np.random.Generator) -> np.ndarray:
    return np.rint(rng.normal(mean, deviation, number)).astype(np.int64)


def _shared_out(total: int, owns_MK: np.ndarray) -> np.ndarray:
    """Returns `total` of each client spread evenly over its classes; the first ones take the remainder."""
    number_M1 = owns_MK.sum(1, keepdims=True)
    place_MK = owns_MK.cumsum(1) - 1
    return np.where(owns_MK, total // number_M1 + (place_MK < total % number_M1), 0)
