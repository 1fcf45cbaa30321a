"""Evaluation of one client on its test and validation samples: before the next download, and after it."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.payload import Payload
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.infer import num_correct
from hpcfl.methods.metrics import silhouette
from hpcfl.training.local_client import LocalClient, Part

UNDEFINED = -1
"""Number of correct predictions where there are no predictions."""


PREFIX: dict[Part, str] = {"test": "", "validation": "validation_", "train": "train_"}
"""By part of a client's samples: what the names of its blocks and metrics begin with."""


class Evaluator:
    """Evaluates clients; what their networks give is kept in their records until the download arrives."""

    def __init__(self, plan: RunPlan, algorithm: Algorithm):
        self.plan, self.algorithm = plan, algorithm

    def _kept_parts(self, i: int) -> tuple[Part, ...]:
        """Returns the parts of a client's samples whose features are kept."""
        return ("test", "validation") if len(self.plan.clients[i].validation) else ("test",)

    def evaluate_network(self, client: LocalClient, record: dict[str, Tensor]) -> None:
        """Stores features, silhouette, and the correct predictions by head and by the algorithm."""
        for part in self._kept_parts(client.id):
            z_ND, correct = record[f"{PREFIX[part]}z"], record[f"{PREFIX[part]}correct"]
            if client.bound.diverged:  # it predicts nothing, so nothing is correct
                z_ND.zero_()
                correct.zero_()
                continue
            new_ND = all_features(client, part)
            by_name = self._correct_by_name(client, part, new_ND)
            z_ND.copy_(new_ND)
            correct.copy_(torch.tensor([correct_by_head(client, part, new_ND), *by_name]))
            if part == "test":
                record["silhouette"].fill_(silhouette(new_ND, client.samples(part).labels_N))
        if client.bound.diverged:
            record["silhouette"].fill_(torch.nan)

    def _correct_by_name(self, client: LocalClient, part: Part, z_ND: Tensor) -> list[int]:
        """Returns the correct predictions by other means than the head, in the order of their names."""
        labels_N, predicted = client.samples(part).labels_N, self.algorithm.predict(client, z_ND)
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
        client.metrics["evaluated"] = True
        client.metrics["silhouette"] = record["silhouette"].item()
        z_of = {
            part: self._measure_kept(client, part, record, diverged, download)
            for part in self._kept_parts(client.id)
        }
        if self.plan.config.log.train_accuracy:
            self._measure_train(client, diverged, download)
        return z_of["test"]

    def _measure_kept(
        self, client: LocalClient, part: Part, record: dict[str, Tensor], diverged: bool, download: Payload
    ) -> Tensor:
        """Measures the accuracies on a part of the samples whose features are kept, and returns these."""
        metrics, prefix, changes = client.metrics, PREFIX[part], self.algorithm.download_changes
        by_head, *by_name = record[f"{prefix}correct"].tolist()
        z_ND = record[f"{prefix}z"].to(client.device)
        labels_N = client.samples(part).labels_N
        if changes != "nothing":
            metrics[f"{prefix}accuracy_trained"] = by_head / len(labels_N)
            if changes == "network" and not diverged:
                z_ND = all_features(client, part)
                if part == "test":
                    metrics["silhouette"] = silhouette(z_ND, labels_N)
                by_name = self._correct_by_name(client, part, z_ND)
            by_head = 0 if diverged else correct_by_head(client, part, z_ND)
        metrics[f"{prefix}accuracy_head"] = by_head / len(labels_N)
        for name, correct in zip(self.algorithm.predictions, by_name, strict=True):
            if correct != UNDEFINED:
                metrics[f"{prefix}accuracy_{name}"] = correct / len(labels_N)
        for name, predicted_N in self.algorithm.predict_by_download(client.id, z_ND, download).items():
            correct = 0 if diverged else num_correct(predicted_N, labels_N)
            metrics[f"{prefix}accuracy_{name}"] = correct / len(labels_N)
        return z_ND

    def _measure_train(self, client: LocalClient, diverged: bool, download: Payload) -> None:
        """Measures the accuracies on the training samples, in eval mode, without keeping their features."""
        correct, samples = Counter[str](), len(self.plan.clients[client.id].train)
        if diverged:
            nothing_1D = torch.zeros(1, self.plan.dims[1], device=client.device)
            by_download = self.algorithm.predict_by_download(client.id, nothing_1D, download)
            correct.update(dict.fromkeys(("head", *self.algorithm.predictions, *by_download), 0))
        else:
            for z_BD, y_B in client.features("train"):
                by_name = self.algorithm.predict(client, z_BD)
                predicted = {
                    "head": predicted_by_head(client, z_BD),
                    **{name: by_name[name] for name in self.algorithm.predictions if name in by_name},
                    **self.algorithm.predict_by_download(client.id, z_BD, download),
                }
                correct.update({name: num_correct(each_B, y_B) for name, each_B in predicted.items()})
        for name, number in correct.items():
            client.metrics[f"train_accuracy_{name}"] = number / samples


def all_features(client: LocalClient, part: Part) -> Tensor:
    """Returns the features of a part of a client's samples, in eval mode and in order."""
    return torch.cat([z_BD for z_BD, _ in client.features(part)])


@torch.no_grad()
def predicted_by_head(client: LocalClient, z_ND: Tensor) -> Tensor:
    """Returns the predictions by the client's head."""
    client.network.eval()
    return client.step.logits(z_ND).argmax(1)


def correct_by_head(client: LocalClient, part: Part, z_ND: Tensor) -> int:
    """Returns the number of correct predictions by the client's head."""
    return num_correct(predicted_by_head(client, z_ND), client.samples(part).labels_N)
