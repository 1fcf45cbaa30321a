"""Evaluation of one client on its test samples, before and after the round's global prototypes are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.infer import num_correct
from hpcfl.methods.metrics import silhouette
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.methods.prototypes import Prototypes
from hpcfl.training.bound_network import BoundNetwork
from hpcfl.training.epochs import features
from hpcfl.training.samples import SampleSource

UNDEFINED = -1
"""Number of correct predictions by prototypes where there are no prototypes."""


class Evaluator:
    """Evaluates clients; what the network gives is kept in the client's record until prototypes arrive."""

    def __init__(self, plan: RunPlan, method: PrototypeMethod, source: SampleSource, device: torch.device):
        self.plan, self.method, self.source, self.device = plan, method, source, device
        self.owned_MK = torch.from_numpy(plan.class_counts_MK > 0).to(device)

    def evaluate_network(self, i: int, network: BoundNetwork, record: Mapping[str, Tensor]) -> None:
        """Stores test features, silhouette, and correct predictions by head and by local prototypes."""
        if network.diverged:  # it predicts nothing, so nothing is correct
            record["z"].zero_()
            record["correct"].zero_()
            record["silhouette"].fill_(torch.nan)
            return
        samples = self.source.samples(self.plan.clients[i].test, network.step.options.memory_format)
        batch = self.plan.config.runtime.inference_batch
        z_ND = torch.cat([z_BD for z_BD, _ in features(network.step, samples, batch)])
        with torch.no_grad():
            by_head = num_correct(network.step.logits(z_ND).argmax(1), samples.labels_N)
        by_local = UNDEFINED
        if network.prototypes.present_K.any():
            by_local = num_correct(self.method.nearest_N(z_ND, network.prototypes), samples.labels_N)
        record["z"].copy_(z_ND)
        record["correct"].copy_(torch.tensor([by_head, by_local]))
        record["silhouette"].fill_(silhouette(z_ND, samples.labels_N))

    def evaluate_prototypes(
        self, i: int, record: Mapping[str, Tensor], diverged: bool, target: Prototypes, metrics: np.ndarray
    ) -> None:
        """Measures a client's accuracies, now that the global prototypes of its round are here."""
        by_head, by_local = record["correct"].tolist()
        tests = len(self.plan.clients[i].test)
        metrics["evaluated"] = True
        metrics["silhouette"] = record["silhouette"].item()
        metrics["accuracy_head"] = by_head / tests
        if by_local != UNDEFINED:
            metrics["accuracy_local"] = by_local / tests
        if target.present_K.any():
            y_N = self.source.samples(self.plan.clients[i].test).labels_N
            predicted_N = self.method.nearest_N(record["z"].to(self.device), self._allowed(i, target))
            metrics["accuracy_global"] = 0.0 if diverged else num_correct(predicted_N, y_N) / tests

    def _allowed(self, i: int, target: Prototypes) -> Prototypes:
        """Returns the prototypes that client i chooses among."""
        if not self.plan.config.method.own_classes:
            return target
        return Prototypes(target.value_KD, target.present_K & self.owned_MK[i])
