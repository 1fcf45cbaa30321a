"""Metrics of a round, gathered from all ranks and put in client order, so that no sum depends on ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcfl.comm.metrics_codec import LOSSES, SavedClient, decode_metrics
from hpcfl.methods.metrics import personalisation

PATHS = {"loss": "/round/loss"} | {
    name: f"/round/{name}" if name.startswith("gradient") else f"/round/loss_{name}" for name in LOSSES[1:]
}
"""Where the means of losses and gradients over participants are logged."""


@dataclass(frozen=True)
class RoundMetrics:
    """A round in numbers: rows of the log, right answers by inference, CPU seconds on clients and in all."""

    row: dict[str, Any]
    correct_M: dict[str, np.ndarray]
    evaluated: bool
    work: float
    cpu: float
    saved: list[list[SavedClient]]
    """What each rank has on disk of the checkpoint that is open."""


class MetricsCollector:
    """Puts reports together; remembers the heads of clients that do not train in a round."""

    def __init__(self, count_MK: np.ndarray):
        self.count_MK = count_MK
        self.norm_MK = np.full(count_MK.shape, np.nan)

    def __call__(self, messages: Sequence[np.ndarray]) -> RoundMetrics:
        """Returns what the ranks' reports say."""
        clients, classes = self.count_MK.shape
        decoded = [decode_metrics(body, classes) for body in messages]
        every = np.concatenate([records for _, records, _ in decoded])
        rank_R = np.repeat(np.arange(len(decoded)), [len(records) for _, records, _ in decoded])
        trained, evaluated = every["trained"], every[every["evaluated"]]
        who = every["client"][trained]

        def by_client(name: str) -> np.ndarray:
            value_M = np.full((clients, *every[name].shape[1:]), np.nan)
            value_M[who] = every[name][trained]
            return value_M

        accepted_M = np.nan_to_num(by_client("accepted")).astype(np.int64)
        correct_M = np.nan_to_num(by_client("accepted_correct"))
        silhouette_M = np.full(clients, np.nan)
        silhouette_M[evaluated["client"]] = evaluated["silhouette"]
        rank_M = np.full(clients, -1)
        rank_M[who] = rank_R[trained]
        norm_MK = by_client("norm")
        self.norm_MK = np.where(np.isnan(norm_MK), self.norm_MK, norm_MK)
        margin_K = np.fmax.reduce([np.full(classes, np.nan), *every["margin"][trained]])
        losses_M = {name: by_client(name) for name in LOSSES}
        row = {
            "/client/loss": losses_M["loss"],
            "/client/seconds": by_client("seconds"),
            "/client/rank": rank_M,
            "/client/silhouette": silhouette_M,
            "/client/accepted": accepted_M,
            "/client/pseudo_accuracy": correct_M / np.where(accepted_M, accepted_M, np.nan),
            "/client/thresholds": by_client("threshold"),
            "/round/silhouette": mean(silhouette_M),
            "/round/accepted": accepted_M.sum(),
            "/round/pseudo_accuracy": correct_M.sum() / (accepted_M.sum() or np.nan),
            "/round/personalisation": personalisation(self.norm_MK, self.count_MK),
            "/prototypes/dead": np.array([mean(dead_M) for dead_M in by_client("dead").T]),
            "/prototypes/margin_clients": margin_K,
            "/prototypes/margin_clients_normalised": margin_K / (np.fmax.reduce(margin_K) or np.nan),
        } | {PATHS[name]: self._over_samples(loss_M) for name, loss_M in losses_M.items()}
        work, cpu = (sum(part) for part in zip(*((e.work, e.total) for e, _, _ in decoded), strict=True))
        saved = [entries for _, _, entries in decoded]
        return RoundMetrics(row, _correct(evaluated, clients), len(evaluated) > 0, work, cpu, saved)

    def _over_samples(self, value_M: np.ndarray) -> float:
        """Returns the mean over the training samples of those clients of which it is known."""
        known_M = np.isfinite(value_M)
        samples_M = self.count_MK.sum(1)[known_M]
        return float((value_M[known_M] * samples_M).sum() / samples_M.sum()) if known_M.any() else np.nan


def _correct(evaluated: np.ndarray, clients: int) -> dict[str, np.ndarray]:
    """Returns right answers by inference and client; NaN where there was nothing to answer by."""
    found = {name: np.full(clients, np.nan) for name in ("head", "global", "local")}
    for name, correct_M in found.items():
        known = evaluated[evaluated[name] >= 0]
        correct_M[known["client"]] = known[name]
    return found


def mean(values: np.ndarray) -> float:
    """Returns the mean of what is known, in order; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
