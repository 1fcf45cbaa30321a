"""FedDistill: clients follow the mean logits that all clients give to a label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, ClassRows, Payload, Rows, class_rows
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.aggregate import Upload, mean
from hpcfl.methods.prototypes import ClassMeans
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.step.step import BatchOutputs, LossTerms


def distill(logit_BK: Tensor, target_BK: Tensor, known_B: Tensor, term: str) -> Tensor:
    """Returns the mean distance of logits to the mean logits of their labels; unknown labels add zero."""
    if term == "mse":
        distance_B = (logit_BK - target_BK).square().mean(1)
    else:
        weight_BK = target_BK.softmax(1) if term == "softmax" else target_BK
        distance_B = cross_entropy(logit_BK, weight_BK, reduction="none")
    return torch.where(known_B, distance_B, 0.0).mean()


class FedDistill(Algorithm):
    """CE + γ · distillation; the server averages the clients' mean logits by class, without weights.

    A client's mean logits are those of its training batches, in train mode. Classes that nobody uploads in a
    round have no logits in the next; after a round without any upload all logits stay.
    """

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        classes = plan.dims[0]
        self.arrays = [Rows("logits", classes, classes)]
        self.means = self._no_means()

    def _no_means(self) -> ClassMeans:
        return ClassMeans(self.plan.dims[0], self.plan.dims[0], self.device)

    def download_arrays(self) -> Sequence[Array]:
        return self.arrays

    def upload_arrays(self) -> Sequence[Array]:
        return self.arrays

    def local_loss(self, client: LocalClient, download: Payload) -> LossTerms | None:
        if not download:
            return None
        target, options = class_rows(download, "logits"), self.options

        def loss(outputs: BatchOutputs) -> dict[str, tuple[float, Tensor]]:
            y_B = outputs.y_B
            term = distill(outputs.logit_BK, target.value_KD[y_B], target.present_K[y_B], options.term)
            return {"distill": (options.weight, term)}

        return loss

    def train(self, client: LocalClient, download: Payload) -> Losses:
        self.means = self._no_means()
        return client.train(
            self.local_loss(client, download), lambda outputs: self.means.add(outputs.logit_BK, outputs.y_B)
        )

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        return {"logits": self.means.prototypes()}

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        if not uploads:
            return last
        rows = [class_rows(upload.payload, "logits") for upload in uploads]
        means: ClassRows = mean([Upload(each, each.present_K.long(), 0) for each in rows])
        return {"logits": means}
