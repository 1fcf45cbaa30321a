"""Ways to deal samples to clients: each returns the clients' indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcfl.errors import BadInput

TRIES = 1000

Rng = np.random.Generator | np.random.RandomState
Draw = tuple[np.ndarray, Callable[[], list[np.ndarray]]]
"""How many samples each client would hold, and who would hold which."""


def dirichlet(
    y: np.ndarray, clients: int, alpha: float, least: int, rng: Rng, rounding: np.ufunc = np.rint
) -> list[np.ndarray]:
    """Each class is dealt by a Dirichlet draw; a client that holds its even share takes no more.

    That rule, and drawing again until every client has enough, is the papers' common practice; with numpy's
    legacy generator and cuts rounded down these are their draws, in their order. Rounded down, shares that
    add up to 0.999… leave one sample of nearly every class to the last client.
    """
    of_class = _by_class(y)

    def draw() -> Draw | None:
        held, dealt = np.zeros(clients, dtype=np.int64), []
        for members in of_class:
            indices = members.copy()
            rng.shuffle(indices)
            share = rng.dirichlet(np.full(clients, alpha)) * (held < len(y) / clients)
            if not share.sum() > 0:  # α so small that every share left is zero
                return None
            cuts = rounding(np.cumsum(share / share.sum()) * len(indices)).astype(np.int64)[:-1]
            held += np.diff(cuts, prepend=0, append=len(indices))
            dealt.append((indices, cuts))
        return held, lambda: _joined([np.split(indices, cuts) for indices, cuts in dealt])

    return _until(least, clients, draw, f"partition.alpha = {alpha}")


def pathological(
    y: np.ndarray, clients: int, classes_per_client: int, least: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Each client has so many classes, each class an owner; its owners' shares are drawn from U(0.1, 1)."""
    of_class = _by_class(y)
    classes, wanted = len(of_class), f"partition.classes_per_client = {classes_per_client}"
    if classes_per_client > classes:
        raise BadInput(f"{wanted}: the data has {classes} classes")
    if clients * classes_per_client < classes:
        raise BadInput(
            f"{wanted}: with {clients} clients some of the {classes} classes would belong to nobody"
        )

    def draw() -> Draw:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for k, mine in enumerate(class_owners(np.full(clients, classes_per_client), classes, rng)):
            indices = rng.permutation(of_class[k])
            if len(indices) < len(mine):
                raise BadInput(f"{wanted}: class {k} has {len(indices)} samples for its {len(mine)} clients")
            share = rng.uniform(0.1, 1.0, len(mine))
            spare = len(indices) - len(mine)  # everyone has a sample; the rest is cut by shares
            cuts = np.arange(1, len(mine)) + np.rint(np.cumsum(share / share.sum())[:-1] * spare).astype(int)
            for client, part in zip(mine, np.split(indices, cuts), strict=True):
                parts[client].append(part)
        return np.array([sum(map(len, part)) for part in parts]), lambda: list(map(np.concatenate, parts))

    return _until(least, clients, draw, wanted)


def _until(least: int, clients: int, draw: Callable[[], Draw | None], wanted: str) -> list[np.ndarray]:
    """Returns the first draw that gives every client enough."""
    best = 0
    for _ in range(TRIES):
        drawn = draw()
        if drawn is None:
            continue
        held, parts = drawn
        if held.min() >= least:
            return parts()
        best = max(best, int(held.min()))
    raise BadInput(
        f"{wanted}: none of {TRIES} draws gave each of {clients} clients "
        f"partition.min_samples = {least} samples; the best left one with {best}"
    )


def _by_class(y: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(y == k) for k in range(int(y.max()) + 1)]


def _joined(dealt: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Returns each client's samples from every class's parts."""
    return [np.concatenate(parts) for parts in zip(*dealt, strict=True)]


def class_owners(number_M: np.ndarray, classes: int, rng: np.random.Generator) -> list[list[int]]:
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
    """Returns train and test samples: `fraction` of each class and of all, every class in training.

    What rounding gives one class too much the next, in random order, has less, so that clients of many small
    classes have their share of test samples too.
    """
    train, test, wanted = [], [], 0.0
    for k in rng.permutation(np.unique(y[part])):
        indices = rng.permutation(part[y[part] == k])
        wanted += fraction * len(indices)
        cut = min(max(1, int(wanted + 0.5)), len(indices))
        wanted -= cut
        train.append(indices[:cut])
        test.append(indices[cut:])
    # where classes of one sample took all, the first larger one gives one back, if any was to be tested
    if not any(map(len, test)) and int(fraction * len(part) + 0.5) < len(part):
        for at, indices in enumerate(train):
            if len(indices) > 1:
                train[at], test[at] = indices[:-1], indices[-1:]
                break
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
