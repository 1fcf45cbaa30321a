"""The test samples whose features are sent to rank 0 after a round; every rank computes the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcfl.federation.run_plan import RunPlan
from hpcfl.utils.seeds import generator

Selection = tuple[np.ndarray, ...]
"""By client: sorted positions among its test samples."""
POOLED_SAMPLES = 2000
"""Most test samples of all clients together in the pooled silhouette."""


def pooled_samples(plan: RunPlan, t: int) -> Selection:
    """Returns the samples of the pooled silhouette of round t (from 0): a keyed choice in saved rounds."""
    config, sizes_M = plan.config, [len(client.test) for client in plan.clients]
    total, number = sum(sizes_M), 0
    if config.evaluates(t) and config.saves_prototypes(t):
        number = min(POOLED_SAMPLES, total)
    chosen = np.sort(generator(config.seed, "pooled samples", t).choice(total, number, replace=False))
    ends_M = np.cumsum(sizes_M)
    parts = np.split(chosen, np.searchsorted(chosen, ends_M[:-1]))
    return tuple(part - (end - size) for part, end, size in zip(parts, ends_M, sizes_M, strict=True))


def saved_samples(plan: RunPlan) -> Selection:
    """Returns the test samples whose features the log saves: a keyed choice, the same in all its rounds.

    Of each class, at most log.features_per_class pairs of client and sample.
    """
    config = plan.config
    client_P = np.repeat(np.arange(len(plan.clients)), [len(client.test) for client in plan.clients])
    sample_P = np.concatenate([np.arange(len(client.test)) for client in plan.clients])
    y_P = plan.data.y[np.concatenate([client.test for client in plan.clients])]
    chosen_P = np.zeros(len(y_P), dtype=bool)
    for k in np.unique(y_P) if config.log.features_at else ():
        pairs = np.flatnonzero(y_P == k)
        number = min(config.log.features_per_class, len(pairs))
        chosen_P[generator(config.seed, "saved features", int(k)).choice(pairs, number, replace=False)] = True
    return tuple(sample_P[chosen_P & (client_P == client)] for client in range(len(plan.clients)))


def saved_features(plan: RunPlan, t: int) -> Selection:
    """Returns the samples whose features the log saves of round t (from 0)."""
    if plan.config.saves_features(t):
        return saved_samples(plan)
    return tuple(np.zeros(0, dtype=np.int64) for _ in plan.clients)


SELECTIONS: tuple[Callable[[RunPlan, int], Selection], ...] = (pooled_samples, saved_features)
"""All that rank 0 needs features for."""


def sent_samples(plan: RunPlan, t: int) -> Selection:
    """Returns the test samples whose features are sent after round t (from 0), each once."""
    selections = [select(plan, t) for select in SELECTIONS]
    return tuple(np.unique(np.concatenate(parts)) for parts in zip(*selections, strict=True))
