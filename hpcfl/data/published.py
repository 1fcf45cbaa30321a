"""The papers' own partitions: PFLlib's generator, which FedTGP, ProtoNorm and FedORGP use, draw by draw."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data.partitioners import dirichlet
from hpcfl.errors import BadInput

MIN_SAMPLES = 40
"""10 ÷ (1 − 0.75), the generator's constant in PFLlib and FedTGP; 128 in FedORGP, 4 in ProtoNorm."""


def partition(y: np.ndarray, clients: int, settings: PartitionConfig) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns every client's train and test samples, in the order in which the generator leaves them."""
    rng = np.random.RandomState(settings.seed)  # its stream is what was published
    least = int(min(settings.min_samples or MIN_SAMPLES, len(y) / clients / 2))
    if settings.name == "dirichlet":
        parts = dirichlet(y, clients, settings.alpha, least, rng, rounding=np.floor)
    else:
        parts = _pathological(y, clients, settings.classes_per_client, least, rng)
    return [_split(part, settings.train_fraction, rng) for part in parts]


def _pathological(
    y: np.ndarray, clients: int, classes_per_client: int, least: int, rng: np.random.RandomState
) -> list[np.ndarray]:
    """Classes in order go to the first clients with room; all but the last owner's sizes are drawn."""
    classes = int(y.max()) + 1
    room = np.full(clients, classes_per_client)
    parts: list[list[np.ndarray]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for k in range(classes):
        owners = np.flatnonzero(room > 0)[: int(np.ceil(clients / classes * classes_per_client))]
        if len(owners) == 0:
            continue  # this class belongs to nobody: so it was published
        indices = np.flatnonzero(y == k)
        even = len(indices) / len(owners)
        low, high = int(max(even / 10, least / classes)), int(even)
        if len(owners) > 1 and low >= high:
            raise BadInput(
                f"partition.style = 'published': class {k} has {len(indices)} samples for {len(owners)} "
                f"clients, no room to draw sizes from {low} to {high}; style = 'stratified' can"
            )
        sizes = rng.randint(low, high, len(owners) - 1) if len(owners) > 1 else np.zeros(0, dtype=np.int64)
        for client, part in zip(owners, np.split(indices, np.cumsum(sizes)), strict=True):
            parts[client].append(part)
            room[client] -= 1
    return [np.concatenate(part) for part in parts]


def _split(part: np.ndarray, fraction: float, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Returns what scikit-learn's `train_test_split` does: a permutation's head tests, its tail trains."""
    train = int(np.floor(fraction * len(part)))
    order = rng.permutation(len(part))
    cut = len(part) - train
    return part[order[cut:]], part[order[:cut]]
