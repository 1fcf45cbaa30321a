"""Partitioners: each returns the sample indices of every client."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcfl.errors import BadInput
from hpcfl.utils.formatting import plural

MAX_DRAWS = 1000

Rng = np.random.Generator | np.random.RandomState
Draw = tuple[np.ndarray, Callable[[], list[np.ndarray]]]
"""Number of samples of each client, and a function that returns each client's samples."""


def dirichlet(
    y: np.ndarray,
    clients: int,
    alpha: float,
    min_samples: int,
    rng: Rng,
    rounding: np.ufunc = np.rint,
    redraw_clients: bool = False,
) -> list[np.ndarray]:
    """Splits each class by Dirichlet proportions; a client that has its even share gets no more samples.

    That rule, and drawing again until every client has enough samples, is the papers' common practice. With
    numpy's legacy generator and cuts rounded down these are the papers' draws, in their order. Rounded down,
    proportions that add up to 0.999… leave one sample of nearly every class to the last client.

    With many clients hardly a draw gives all of them enough. With `redraw_clients`, only the shares of those
    that have too few are then drawn again.
    """
    class_indices = _indices_by_class(y)

    def draw() -> Draw | None:
        sizes_M, class_cuts = np.zeros(clients, dtype=np.int64), []
        for members in class_indices:
            indices = members.copy()
            rng.shuffle(indices)
            share = rng.dirichlet(np.full(clients, alpha)) * (sizes_M < len(y) / clients)
            if not share.sum() > 0:  # α is so small that every remaining share is 0
                return None
            cuts = rounding(np.cumsum(share / share.sum()) * len(indices)).astype(np.int64)[:-1]
            sizes_M += np.diff(cuts, prepend=0, append=len(indices))
            class_cuts.append((indices, cuts))
        return sizes_M, lambda: _join_classes([np.split(indices, cuts) for indices, cuts in class_cuts])

    setting = f"partition.alpha = {alpha}"
    try:
        return _draw_until_enough(min_samples, clients, draw, setting)
    except BadInput:
        parts = _redraw_clients(class_indices, clients, alpha, min_samples, rng) if redraw_clients else None
        if parts is None:
            raise
        return parts


def _redraw_clients(
    class_indices: list[np.ndarray], clients: int, alpha: float, min_samples: int, rng: Rng
) -> list[np.ndarray] | None:
    """Splits as `dirichlet`, but draws the shares of a client with too few samples again, of it alone.

    A Dirichlet distribution is that of independent Gamma variables, divided by their sum. Returns None if
    some client never has enough.
    """
    even_share = sum(map(len, class_indices)) / clients
    gamma_MK = rng.standard_gamma(alpha, (clients, len(class_indices)))
    for _ in range(MAX_DRAWS):
        sizes_M, class_cuts = np.zeros(clients, dtype=np.int64), []
        for k, indices in enumerate(class_indices):
            share = gamma_MK[:, k] * (sizes_M < even_share)
            total = max(share.sum(), np.finfo(float).tiny)
            cuts = np.rint(np.cumsum(share / total) * len(indices)).astype(np.int64)[:-1]
            sizes_M += np.diff(cuts, prepend=0, append=len(indices))
            class_cuts.append(cuts)
        short = sizes_M < min_samples
        if not short.any():
            parts = zip(class_indices, class_cuts, strict=True)
            return _join_classes([np.split(rng.permutation(indices), cuts) for indices, cuts in parts])
        gamma_MK[short] = rng.standard_gamma(alpha, (int(short.sum()), len(class_indices)))
    return None


def pathological(
    y: np.ndarray, clients: int, classes_per_client: int, min_samples: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Gives each client a fixed number of classes; clients' shares of a class are drawn from U(0.1, 1)."""
    class_indices = _indices_by_class(y)
    classes, setting = len(class_indices), f"partition.classes_per_client = {classes_per_client}"
    if classes_per_client > classes:
        raise BadInput(f"{setting}: the data has {plural(classes, 'class', 'classes')}")
    if clients * classes_per_client < classes:
        raise BadInput(
            f"{setting}: with {clients} clients some of the {classes} classes would belong to nobody"
        )

    def draw() -> Draw:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for k, owners in enumerate(class_owners(np.full(clients, classes_per_client), classes, rng)):
            indices, number = rng.permutation(class_indices[k]), len(owners)
            if len(indices) < number:
                raise BadInput(f"{setting}: class {k} has {len(indices)} samples for its {number} clients")
            share = rng.uniform(0.1, 1.0, number)
            rest = len(indices) - number  # each client gets one sample; the rest is split by shares
            cuts = np.arange(1, number) + np.rint(np.cumsum(share / share.sum())[:-1] * rest).astype(int)
            for client, part in zip(owners, np.split(indices, cuts), strict=True):
                parts[client].append(part)
        return np.array([sum(map(len, part)) for part in parts]), lambda: list(map(np.concatenate, parts))

    return _draw_until_enough(min_samples, clients, draw, setting)


def _draw_until_enough(
    min_samples: int, clients: int, draw: Callable[[], Draw | None], setting: str
) -> list[np.ndarray]:
    """Returns the first draw that gives every client at least `min_samples`."""
    best = 0
    for _ in range(MAX_DRAWS):
        drawn = draw()
        if drawn is None:
            continue
        sizes_M, client_indices = drawn
        if sizes_M.min() >= min_samples:
            return client_indices()
        best = max(best, int(sizes_M.min()))
    raise BadInput(
        f"{setting}: none of {MAX_DRAWS} draws gave each of {clients} clients "
        f"partition.min_samples = {min_samples} samples; the best left one with {best}"
    )


def _indices_by_class(y: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(y == k) for k in range(int(y.max()) + 1)]


def _join_classes(class_parts: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Returns each client's samples, joined over the classes."""
    return [np.concatenate(parts) for parts in zip(*class_parts, strict=True)]


def class_owners(number_M: np.ndarray, classes: int, rng: np.random.Generator) -> list[list[int]]:
    """Returns the clients of each class, where client i has `number_M[i]` classes.

    Classes are taken one by one from a shuffled list of all classes, which is shuffled anew when it is empty,
    so the numbers of clients of any two classes differ by at most one.
    """
    owners: list[list[int]] = [[] for _ in range(classes)]
    remaining: list[int] = []
    for client, number in enumerate(number_M):
        assigned: set[int] = set()
        while len(assigned) < number:
            if not remaining:  # taken from the end: classes that this client does not have come first
                order = rng.permutation(classes).tolist()
                remaining = [k for k in order if k in assigned] + [k for k in order if k not in assigned]
            k = remaining.pop()
            assigned.add(k)
            owners[k].append(client)
    return owners


def natural(
    writer_ids: np.ndarray | None, clients: int, min_samples: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Makes each client one writer, drawn from the writers with at least `min_samples` samples."""
    if writer_ids is None:
        raise BadInput("partition.name = 'natural': this dataset does not say who wrote what")
    sizes = np.bincount(writer_ids)
    candidates = np.flatnonzero(sizes >= min_samples)
    if len(candidates) < clients:
        raise BadInput(
            f"federation.clients = {clients}: only {len(candidates)} of {len(sizes)} writers have "
            f"partition.min_samples = {min_samples} samples"
        )
    chosen = np.sort(rng.choice(candidates, clients, replace=False))
    order = np.argsort(writer_ids, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)])
    return [order[first[writer] : first[writer + 1]] for writer in chosen]


def stratified_split(
    indices: np.ndarray, y: np.ndarray, fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns train and test samples: `fraction` of each class and of all, each class in the train samples.

    The rounding error of a class is carried over to the next, in random order, so that clients with many
    small classes get their share of test samples too.
    """
    train, test, target = [], [], 0.0
    for k in rng.permutation(np.unique(y[indices])):
        members = rng.permutation(indices[y[indices] == k])
        target += fraction * len(members)
        cut = min(max(1, int(target + 0.5)), len(members))
        target -= cut
        train.append(members[:cut])
        test.append(members[cut:])
    # where classes of one sample left no test sample although there should be one, a larger class gives one
    if not any(map(len, test)) and int(fraction * len(indices) + 0.5) < len(indices):
        for at, members in enumerate(train):
            if len(members) > 1:
                train[at], test[at] = members[:-1], members[-1:]
                break
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
