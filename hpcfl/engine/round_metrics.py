"""The metrics of a round: what ranks measured, and what rank 0 computes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.checkpoint.saved_client import SavedClient
from hpcfl.engine.rank_report import CpuSeconds, decode_report
from hpcfl.federation.run_plan import RunPlan
from hpcfl.federation.sent_features import pooled_samples, saved_features
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.methods.metrics import personalisation, silhouette
from hpcfl.metrics.features import FeatureRows, decode_features
from hpcfl.metrics.records import MetricsGatherer

Row = dict[str, Any]


@dataclass(frozen=True)
class RoundMetrics:
    """The reports of all ranks on a round."""

    row: Row
    """Values of the log by path."""
    cpu: CpuSeconds
    saved: list[Sequence[SavedClient]]
    """By rank: the clients that it has saved of the checkpoint that is being written."""
    chosen: Row
    """Values of the log by path that only rounds of log.features_at have; empty in other rounds."""


class RoundMetricsBuilder:
    """Makes the row of a round from the reports of all ranks."""

    def __init__(self, plan: RunPlan, algorithm: Algorithm):
        self.plan, self.algorithm = plan, algorithm
        self.count_MK = plan.class_counts_MK
        self.tests_M = np.array([len(client.test) for client in plan.clients])
        self.validation_M = np.array([len(client.validation) for client in plan.clients])
        self.gatherer = MetricsGatherer(run_metrics(plan), dimension_sizes(plan), self.count_MK.sum(1))

    @property
    def head_norm_MK(self) -> np.ndarray:
        """Norms of the head weights, also of clients that did not train in the last round."""
        return self.gatherer.latest["head_norms"]

    def build(self, t: int, messages: Sequence[np.ndarray], server: Row) -> RoundMetrics:
        """Returns the metrics of round t; `server` are the values that are known on rank 0."""
        reports = [decode_report(message) for message in messages]
        records, rank_R = self.gatherer.decode([report.metrics for report in reports])
        features = decode_features([report.features for report in reports], self.plan.dims[1])
        row = self.gatherer.reduce(records)
        rank_M = np.full(len(self.tests_M), -1)
        rank_M[records["client"][records["trained"]]] = rank_R[records["trained"]]
        row |= {
            "/client/rank": rank_M,
            "/round/personalisation": personalisation(self.head_norm_MK, self.count_MK),
            "/round/silhouette_pooled": self._pooled_silhouette(features.of(pooled_samples(self.plan, t))),
        }
        evaluated = bool(records["evaluated"].any())
        row |= self._accuracies(row, evaluated)
        if self.plan.has_validation:
            row |= self._validation_accuracies(row, evaluated)
        row |= self.algorithm.derived_values(server | row)
        cpu = CpuSeconds(
            sum(report.cpu.on_clients for report in reports), sum(report.cpu.total for report in reports)
        )
        chosen = {}
        if self.plan.config.saves_features(t):
            chosen = {"/features/round": t, "/features/test": features.table(saved_features(self.plan, t))}
        return RoundMetrics(row, cpu, [report.saved for report in reports], chosen)

    def _pooled_silhouette(self, rows: FeatureRows) -> float:
        """Returns the silhouette of features of all clients together; NaN without any."""
        y_R = self.labels(rows)
        return silhouette(torch.from_numpy(rows.z_RD), torch.from_numpy(y_R)).item()

    def labels(self, rows: FeatureRows) -> np.ndarray:
        """Returns the labels of test samples."""
        clients, pairs = self.plan.clients, zip(rows.client_R, rows.sample_R, strict=True)
        return self.plan.data.y[np.array([clients[i].test[n] for i, n in pairs], dtype=np.int64)]

    def _accuracies(self, row: Row, evaluated: bool) -> Row:
        """Returns the accuracies by the method's own inference; if that is undefined nothing is correct."""
        by_own_M = row[f"/client/accuracy_{self.plan.spec.infer}"]
        if not evaluated:
            return {
                "/round/accuracy": np.nan,
                "/round/accuracy_mean": np.nan,
                "/client/accuracy": np.full_like(by_own_M, np.nan),
            }
        evaluated_M = self.plan.evaluated_M
        correct_M = np.rint(np.nan_to_num(by_own_M) * self.tests_M)
        accuracy_M = np.where(evaluated_M, correct_M / self.tests_M, np.nan)
        return {
            "/round/accuracy": correct_M[evaluated_M].sum() / self.tests_M[evaluated_M].sum(),
            "/round/accuracy_mean": accuracy_M[evaluated_M].mean(),
            "/client/accuracy": accuracy_M,
        }

    def _validation_accuracies(self, row: Row, evaluated: bool) -> Row:
        """Returns the same on validation samples, which some clients may lack."""
        by_own_M, samples_M = row[f"/client/validation_accuracy_{self.plan.spec.infer}"], self.validation_M
        accuracy_M, overall = np.full_like(by_own_M, np.nan), np.nan
        if evaluated:
            correct_M = np.rint(np.nan_to_num(by_own_M) * samples_M)
            known_M = self.plan.evaluated_M & (samples_M > 0)
            np.divide(correct_M, samples_M, out=accuracy_M, where=known_M)
            overall = correct_M[known_M].sum() / samples_M[known_M].sum() if known_M.any() else np.nan
        return {"/round/validation_accuracy": overall, "/client/validation_accuracy": accuracy_M}
