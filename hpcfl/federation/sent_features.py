"""The test samples whose features are sent to rank 0 after a round; every rank computes the same."""

from __future__ import annotations

import numpy as np

from hpcfl.federation.run_plan import RunPlan
from hpcfl.utils.seeds import generator

Selection = tuple[np.ndarray, ...]
"""By client: sorted positions among its test samples."""
POOLED_SAMPLES = 2000
"""Most test samples of all clients together in the pooled silhouette."""


def pooled_samples(plan: RunPlan, t: int) -> Selection:
    """Returns the samples of the pooled silhouette of round t (from 0): a keyed choice in saved rounds."""
    config = plan.config
    if not (config.evaluates(t) and config.saves_prototypes(t)):
        return _no_samples(plan)
    tests = zip(plan.clients, plan.evaluated_M.tolist(), strict=True)
    sizes_M = [len(client.test) * evaluated for client, evaluated in tests]
    total = sum(sizes_M)
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
    if not config.log.features_at:
        return _no_samples(plan)
    client_P = np.repeat(np.arange(len(plan.clients)), [len(client.test) for client in plan.clients])
    sample_P = np.concatenate([np.arange(len(client.test)) for client in plan.clients])
    y_P = plan.data.y[np.concatenate([client.test for client in plan.clients])]
    chosen_P = np.zeros(len(y_P), dtype=bool)
    for k in np.unique(y_P):
        pairs = np.flatnonzero(y_P == k)
        number = min(config.log.features_per_class, len(pairs))
        chosen_P[generator(config.seed, "saved features", int(k)).choice(pairs, number, replace=False)] = True
    ends_M = np.cumsum(np.bincount(client_P[chosen_P], minlength=len(plan.clients)))
    return tuple(np.split(sample_P[chosen_P], ends_M[:-1]))


def saved_features(plan: RunPlan, t: int) -> Selection:
    """Returns the samples whose features the log saves of round t (from 0)."""
    if plan.config.saves_features(t):
        return saved_samples(plan)
    return _no_samples(plan)


def _no_samples(plan: RunPlan) -> Selection:
    return (np.zeros(0, dtype=np.int64),) * len(plan.clients)


def sent_samples(plan: RunPlan, t: int) -> Selection:
    """Returns the test samples whose features are sent after round t (from 0), each once."""
    if not plan.config.saves_features(t):
        return pooled_samples(plan, t)
    selections = pooled_samples(plan, t), saved_features(plan, t)
    return tuple(np.unique(np.concatenate(parts)) for parts in zip(*selections, strict=True))
