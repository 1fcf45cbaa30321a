"""Evaluation of one client on its test samples: before the next download, and after it."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.payload import Payload
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.infer import num_correct
from hpcfl.methods.metrics import silhouette
from hpcfl.training.local_client import LocalClient

UNDEFINED = -1
"""Number of correct predictions where there are no predictions."""


class Evaluator:
    """Evaluates clients; what their networks give is kept in their records until the download arrives."""

    def __init__(self, plan: RunPlan, algorithm: Algorithm):
        self.plan, self.algorithm = plan, algorithm

    def evaluate_network(self, client: LocalClient, record: dict[str, Tensor]) -> None:
        """Stores test features, silhouette, and the correct predictions by head and by the algorithm."""
        if client.bound.diverged:  # it predicts nothing, so nothing is correct
            record["z"].zero_()
            record["correct"].zero_()
            record["silhouette"].fill_(torch.nan)
            return
        labels_N = client.samples("test").labels_N
        z_ND = torch.cat([z_BD for z_BD, _ in client.features("test")])
        by_name = self._correct_by_name(client, z_ND)
        record["z"].copy_(z_ND)
        record["correct"].copy_(torch.tensor([correct_by_head(client, z_ND), *by_name]))
        record["silhouette"].fill_(silhouette(z_ND, labels_N))

    def _correct_by_name(self, client: LocalClient, z_ND: Tensor) -> list[int]:
        """Returns the correct predictions by other means than the head, in the order of their names."""
        labels_N, predicted = client.samples("test").labels_N, self.algorithm.predict(client, z_ND)
        return [
            num_correct(predicted[name], labels_N) if name in predicted else UNDEFINED
            for name in self.algorithm.predictions
        ]

    def evaluate_download(
        self, client: LocalClient, record: dict[str, Tensor], diverged: bool, download: Payload
    ) -> Tensor:
        """Measures a client's accuracies, now that the download that follows its round is here.

        If the download changes the head or the network, it has been applied to the client. Returns its test
        features.
        """
        i, metrics = client.id, client.metrics
        by_head, *by_name = record["correct"].tolist()
        tests = len(self.plan.clients[i].test)
        metrics["evaluated"] = True
        metrics["silhouette"] = record["silhouette"].item()
        z_ND = record["z"].to(client.device)
        labels_N = client.samples("test").labels_N
        if self.algorithm.download_changes != "nothing":
            metrics["accuracy_trained"] = by_head / tests
            if self.algorithm.download_changes == "network" and not diverged:
                z_ND = torch.cat([z_BD for z_BD, _ in client.features("test")])
                metrics["silhouette"] = silhouette(z_ND, labels_N)
                by_name = self._correct_by_name(client, z_ND)
            by_head = 0 if diverged else correct_by_head(client, z_ND)
        metrics["accuracy_head"] = by_head / tests
        for name, correct in zip(self.algorithm.predictions, by_name, strict=True):
            if correct != UNDEFINED:
                metrics[f"accuracy_{name}"] = correct / tests
        for name, predicted_N in self.algorithm.predict_by_download(i, z_ND, download).items():
            metrics[f"accuracy_{name}"] = 0.0 if diverged else num_correct(predicted_N, labels_N) / tests
        return z_ND


@torch.no_grad()
def correct_by_head(client: LocalClient, z_ND: Tensor) -> int:
    """Returns the number of correct predictions by the client's head."""
    client.network.eval()
    return num_correct(client.step.logits(z_ND).argmax(1), client.samples("test").labels_N)
