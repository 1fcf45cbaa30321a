"""Evaluation of one client on its test and validation samples: before the next download, and after it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.payload import Payload
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.infer import num_correct
from hpcfl.methods.metrics import silhouette
from hpcfl.training.local_client import LocalClient, Part
from hpcfl.utils.accelerator import to_device
from hpcfl.utils.host_copies import HostCopies

UNDEFINED = -1
"""Number of correct predictions where there are no predictions."""
NONE = torch.tensor(0)
"""Number of correct predictions of a client that has diverged."""


PREFIX: dict[Part, str] = {"test": "", "validation": "validation_", "train": "train_"}
"""By part of a client's samples: what the names of its blocks and metrics begin with."""


class Evaluator:
    """Evaluates clients; what their networks give is kept in their records until the download arrives.

    Results that are computed on a device reach records and metrics when the copies are finished.
    """

    def __init__(self, plan: RunPlan, algorithm: Algorithm, copies: HostCopies):
        self.plan, self.algorithm, self.copies = plan, algorithm, copies

    def _kept_parts(self, i: int) -> tuple[Part, ...]:
        """Returns the parts of a client's samples whose features are kept."""
        return ("test", "validation") if len(self.plan.clients[i].validation) else ("test",)

    def evaluate_network(self, client: LocalClient, record: dict[str, Tensor], diverged: bool) -> None:
        """Stores features, silhouette, and the correct predictions by head and by the algorithm."""
        for part in self._kept_parts(client.id):
            z_ND, correct = record[f"{PREFIX[part]}z"], record[f"{PREFIX[part]}correct"]
            if diverged:  # it predicts nothing, so nothing is correct
                z_ND.zero_()
                correct.zero_()
                continue
            new_ND = all_features(client, part)
            by_name = self._correct_by_name(client, part, new_ND)
            self.copies.add(new_ND, z_ND.copy_)
            self.copies.add(torch.stack([correct_by_head(client, part, new_ND), *by_name]), correct.copy_)
            if part == "test":
                labels_N = client.samples(part).host_labels_N
                self.copies.add(silhouette(new_ND, labels_N), record["silhouette"].copy_)
        if diverged:
            record["silhouette"].fill_(torch.nan)

    def _correct_by_name(self, client: LocalClient, part: Part, z_ND: Tensor) -> list[Tensor]:
        """Returns the correct predictions by other means than the head, in the order of their names."""
        labels_N, predicted = client.samples(part).labels_N, self.algorithm.predict(client, z_ND)
        undefined = torch.full((), UNDEFINED, device=z_ND.device)
        return [
            defined_correct(predicted[name], labels_N) if name in predicted else undefined
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
        prefix, changes = PREFIX[part], self.algorithm.download_changes
        by_head, *by_name = record[f"{prefix}correct"]
        kept_ND, samples = record[f"{prefix}z"], client.samples(part)
        if changes != "nothing":
            self._set_accuracy(client, f"{prefix}accuracy_trained", by_head, len(samples))
        if changes == "network" and not diverged:
            kept_ND = all_features(client, part)
            if part == "test":
                value = silhouette(kept_ND, samples.host_labels_N)
                self.copies.add(value, partial(_set_metric, client, "silhouette"))
            by_name = self._correct_by_name(client, part, kept_ND)
        z_ND = to_device(kept_ND, client.device)
        if changes != "nothing":
            by_head = NONE if diverged else correct_by_head(client, part, z_ND)
        correct = {"head": by_head, **dict(zip(self.algorithm.predictions, by_name, strict=True))}
        for name, predicted_N in self.algorithm.predict_by_download(client.id, z_ND, download).items():
            correct[name] = NONE if diverged else num_correct(predicted_N, samples.labels_N)
        for name, number in correct.items():
            self._set_accuracy(client, f"{prefix}accuracy_{name}", number, len(samples))
        return kept_ND

    def _set_accuracy(self, client: LocalClient, metric: str, correct: Tensor, samples: int) -> None:
        """Sets a metric to the share of correct predictions, once their number is on the host."""

        def use(number: Tensor) -> None:
            if int(number) >= 0:
                client.metrics[metric] = int(number) / samples

        self.copies.add(correct, use)

    def _measure_train(self, client: LocalClient, diverged: bool, download: Payload) -> None:
        """Measures the accuracies on the training samples, in eval mode, without keeping their features."""
        correct: dict[str, Tensor] = {}
        if diverged:
            nothing_1D = torch.zeros(1, self.plan.dims[1], device=client.device)
            by_download = self.algorithm.predict_by_download(client.id, nothing_1D, download)
            correct = dict.fromkeys(("head", *self.algorithm.predictions, *by_download), NONE)
        else:
            for z_BD, y_B in client.features("train"):
                by_name = self.algorithm.predict(client, z_BD)
                predicted = {
                    "head": predicted_by_head(client, z_BD),
                    **{name: by_name[name] for name in self.algorithm.predictions if name in by_name},
                    **self.algorithm.predict_by_download(client.id, z_BD, download),
                }
                for name, each_B in predicted.items():
                    correct[name] = correct.get(name, 0) + defined_correct(each_B, y_B)
        for name, number in correct.items():
            self._set_accuracy(
                client, f"train_accuracy_{name}", number, len(self.plan.clients[client.id].train)
            )


def defined_correct(predicted_N: Tensor, y_N: Tensor) -> Tensor:
    """Returns the number of correct predictions; UNDEFINED if all are −1: there was nothing to predict by."""
    return num_correct(predicted_N, y_N).masked_fill_((predicted_N < 0).all(), UNDEFINED)


def _set_metric(client: LocalClient, name: str, value: Tensor) -> None:
    client.metrics[name] = value.item()


def all_features(client: LocalClient, part: Part) -> Tensor:
    """Returns the features of a part of a client's samples, in eval mode and in order."""
    return torch.cat([z_BD for z_BD, _ in client.features(part)])


@torch.no_grad()
def predicted_by_head(client: LocalClient, z_ND: Tensor) -> Tensor:
    """Returns the predictions by the client's head."""
    client.network.eval()
    return client.step.logits(z_ND).argmax(1)


def correct_by_head(client: LocalClient, part: Part, z_ND: Tensor) -> Tensor:
    """Returns the number of correct predictions by the client's head."""
    return num_correct(predicted_by_head(client, z_ND), client.samples(part).labels_N)
