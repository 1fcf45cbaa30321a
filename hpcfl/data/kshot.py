"""n-way k-shot clients (FedProto; FedSAP, App. A): few classes, few samples of each, a common test set."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data.partitioners import class_owners, stratified
from hpcfl.errors import BadInput


def nway_kshot(
    y: np.ndarray, train: int, clients: int, settings: PartitionConfig, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns every client's train, test and unlabelled samples.

    n_i ~ N(μ_n, σ²), rounded, 2 … K; k_i ~ N(μ_k, σ²), rounded, at least 1. Training samples, and the
    unlabelled ones, come from the train part and belong to one client each. Everyone tests on those samples
    of the test part that are of its classes; where the data has no test part, one is set apart first.
    """
    everything = np.arange(len(y))
    pool, common = everything[:train], everything[train:]
    if len(common) == 0:
        pool, common = stratified(pool, y, settings.train_fraction, rng)
    known_C = np.unique(y[pool])
    ways_M = np.clip(
        _drawn(settings.ways, settings.deviation, clients, rng), min(2, len(known_C)), len(known_C)
    )
    shots_M = np.maximum(1, _drawn(settings.shots, settings.deviation, clients, rng))
    owners = class_owners(ways_M, len(known_C), rng)
    owns_MC = np.array([[client in mine for mine in owners] for client in range(clients)])
    extra_MC = _shared_out(settings.unlabelled, owns_MC)
    train_M: list[list[np.ndarray]] = [[] for _ in range(clients)]
    pool_M: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for place, (k, mine) in enumerate(zip(known_C, owners, strict=True)):
        deck = rng.permutation(pool[y[pool] == k])
        sizes = np.concatenate([shots_M[mine], extra_MC[mine, place]])
        if sizes.sum() > len(deck):
            raise BadInput(
                f"partition.name = 'nway_kshot': the {len(mine)} clients of class {k} ask for {sizes.sum()} "
                f"training samples, it has {len(deck)}; lower partition.shots, partition.ways, "
                "partition.unlabelled or federation.clients"
            )
        hands = np.split(deck[: sizes.sum()], np.cumsum(sizes)[:-1]) if len(mine) else []
        for client, shots, extra in zip(mine, hands[: len(mine)], hands[len(mine) :], strict=True):
            train_M[client].append(shots)
            pool_M[client].append(extra)
    return [
        (
            np.sort(np.concatenate(train_M[client])),
            common[np.isin(y[common], known_C[owns_MC[client]])],
            np.sort(np.concatenate(pool_M[client])),
        )
        for client in range(clients)
    ]


def _drawn(mean: float, deviation: float, number: int, rng: np.random.Generator) -> np.ndarray:
    return np.rint(rng.normal(mean, deviation, number)).astype(np.int64)


def _shared_out(total: int, owns_MC: np.ndarray) -> np.ndarray:
    """Returns `total` of each client spread evenly over its classes; the first ones take the remainder."""
    number_M1 = owns_MC.sum(1, keepdims=True)
    place_MC = owns_MC.cumsum(1) - 1
    return np.where(owns_MC, total // number_M1 + (place_MC < total % number_M1), 0)
