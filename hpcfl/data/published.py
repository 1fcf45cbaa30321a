"""The partitions of the papers: the same random draws as PFLlib's generator (FedTGP, ProtoNorm, FedORGP)."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data.partitioners import dirichlet
from hpcfl.errors import BadInput

MIN_SAMPLES = 40
"""10 ÷ (1 − 0.75), the constant of PFLlib and FedTGP; FedORGP has 128, ProtoNorm 4."""


def published_partition(
    y: np.ndarray, clients: int, settings: PartitionConfig
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns every client's train and test samples, in the order of PFLlib's generator."""
    rng = np.random.RandomState(settings.seed)  # the generator that the papers' code uses
    min_samples = int(min(settings.min_samples or MIN_SAMPLES, len(y) / clients / 2))
    if settings.name == "dirichlet":
        parts = dirichlet(y, clients, settings.alpha, min_samples, rng, rounding=np.floor)
    else:
        parts = _pathological(y, clients, settings.classes_per_client, min_samples, rng)
    return [_split(part, settings.train_fraction, rng) for part in parts]


def _pathological(
    y: np.ndarray, clients: int, classes_per_client: int, min_samples: int, rng: np.random.RandomState
) -> list[np.ndarray]:
    """Gives each class to the first clients that lack one; all sizes but the last client's are drawn."""
    classes = int(y.max()) + 1
    classes_left = np.full(clients, classes_per_client)
    parts: list[list[np.ndarray]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for k in range(classes):
        owners = np.flatnonzero(classes_left > 0)[: int(np.ceil(clients / classes * classes_per_client))]
        if len(owners) == 0:
            continue  # no client gets this class, as in the published code
        indices = np.flatnonzero(y == k)
        even_share = len(indices) / len(owners)
        low, high = int(max(even_share / 10, min_samples / classes)), int(even_share)
        if len(owners) > 1 and low >= high:
            raise BadInput(
                f"partition.style = 'published': class {k} has {len(indices)} samples for {len(owners)} "
                f"clients, no room to draw sizes from {low} to {high}; style = 'stratified' can"
            )
        sizes = rng.randint(low, high, len(owners) - 1) if len(owners) > 1 else np.zeros(0, dtype=np.int64)
        for client, part in zip(owners, np.split(indices, np.cumsum(sizes)), strict=True):
            parts[client].append(part)
            classes_left[client] -= 1
    return [np.concatenate(part) for part in parts]


def _split(part: np.ndarray, fraction: float, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Splits as scikit-learn's `train_test_split`: the first samples of a permutation are for testing."""
    train = int(np.floor(fraction * len(part)))
    order = rng.permutation(len(part))
    cut = len(part) - train
    return part[order[cut:]], part[order[:cut]]
