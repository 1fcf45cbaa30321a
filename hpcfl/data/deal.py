"""Ways to deal samples to clients: each returns the clients' indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcfl.errors import BadInput

TRIES = 1000

Rng = np.random.Generator | np.random.RandomState


def dirichlet(
    y: np.ndarray, clients: int, alpha: float, least: int, rng: Rng, rounding: np.ufunc = np.rint
) -> list[np.ndarray]:
    """Each class is dealt by a Dirichlet draw; a client that holds its even share takes no more.

    That rule, and drawing again until every client has enough, is the papers' common practice; with numpy's
    legacy generator and cuts rounded down these are their draws, in their order. Rounded down, shares that
    add up to 0.999… leave one sample of nearly every class to the last client.
    """
    best = 0
    for _ in range(TRIES):
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        held = np.zeros(clients, dtype=np.int64)
        for k in range(int(y.max()) + 1):
            indices = np.flatnonzero(y == k)
            rng.shuffle(indices)
            share = rng.dirichlet(np.full(clients, alpha)) * (held < len(y) / clients)
            if not share.sum() > 0:  # α so small that every share left is zero
                break
            cuts = rounding(np.cumsum(share / share.sum()) * len(indices)).astype(np.int64)[:-1]
            for client, part in enumerate(np.split(indices, cuts)):
                parts[client].append(part)
                held[client] += len(part)
        else:
            best = max(best, int(held.min()))
            if held.min() >= least:
                return [np.concatenate(part) for part in parts]
    raise BadInput(
        f"partition.alpha = {alpha}: none of {TRIES} draws gave each of {clients} clients "
        f"partition.min_samples = {least} samples; the best left one with {best}"
    )


def pathological(
    y: np.ndarray, clients: int, classes_per_client: int, least: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Each client has so many classes, each class an owner; its owners' shares are drawn from U(0.1, 1)."""
    classes = int(y.max()) + 1
    wanted = f"partition.classes_per_client = {classes_per_client}"
    if classes_per_client > classes:
        raise BadInput(f"{wanted}: the data has {classes} classes")
    if clients * classes_per_client < classes:
        raise BadInput(
            f"{wanted}: with {clients} clients some of the {classes} classes would belong to nobody"
        )
    best = 0
    for _ in range(TRIES):
        owners = who_owns(np.full(clients, classes_per_client), classes, rng)
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for k, mine in enumerate(owners):
            indices = rng.permutation(np.flatnonzero(y == k))
            if len(indices) < len(mine):
                raise BadInput(f"{wanted}: class {k} has {len(indices)} samples for its {len(mine)} clients")
            share = rng.uniform(0.1, 1.0, len(mine))
            # everyone has a sample; the rest is cut by shares
            cuts = np.arange(1, len(mine)) + (
                np.cumsum(share / share.sum())[:-1] * (len(indices) - len(mine))
            ).astype(np.int64)
            for client, part in zip(mine, np.split(indices, cuts), strict=True):
                parts[client].append(part)
        smallest = min(sum(map(len, part)) for part in parts)
        best = max(best, smallest)
        if smallest >= least:
            return [np.concatenate(part) for part in parts]
    raise BadInput(
        f"{wanted}: none of {TRIES} draws gave each of {clients} clients "
        f"partition.min_samples = {least} samples; the best left one with {best}"
    )


def who_owns(number_M: np.ndarray, classes: int, rng: np.random.Generator) -> list[list[int]]:
    """Returns the clients of each class, where client i has `number_M[i]` classes.

    Classes are dealt from shuffled decks, so any two differ by at most one in their number of clients.
    """
    owners: list[list[int]] = [[] for _ in range(classes)]
    deck: list[int] = []
    for client, number in enumerate(number_M):
        mine: set[int] = set()
        while len(mine) < number:
            if not deck:  # the next card must be one that this client does not hold
                fresh = rng.permutation(classes).tolist()
                deck = [k for k in fresh if k in mine] + [k for k in fresh if k not in mine]
            k = deck.pop()
            mine.add(k)
            owners[k].append(client)
    return owners


def natural(
    writer: np.ndarray | None, clients: int, least: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """A client is a writer: so many of those that have enough samples, drawn by the seed."""
    if writer is None:
        raise BadInput("partition.name = 'natural': this dataset does not say who wrote what")
    sizes = np.bincount(writer)
    enough = np.flatnonzero(sizes >= least)
    if len(enough) < clients:
        raise BadInput(
            f"federation.clients = {clients}: only {len(enough)} of {len(sizes)} writers have "
            f"partition.min_samples = {least} samples"
        )
    chosen = np.sort(rng.choice(enough, clients, replace=False))
    order = np.argsort(writer, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)])
    return [order[first[who] : first[who + 1]] for who in chosen]


def stratified(
    part: np.ndarray, y: np.ndarray, fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns train and test samples, class by class; a class of one or two samples only trains."""
    train, test = [], []
    for k in np.unique(y[part]):
        indices = rng.permutation(part[y[part] == k])
        cut = max(1, int(fraction * len(indices) + 0.5))
        train.append(indices[:cut])
        test.append(indices[cut:])
    return _joined(train), _joined(test)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.sort(np.concatenate(parts))
