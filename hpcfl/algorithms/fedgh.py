"""FedGH: the server trains a head on the clients' prototypes, and sends it to all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hpcfl.algorithms.algorithm import BACKWARD, Values
from hpcfl.algorithms.server_classifier import train_classifier
from hpcfl.algorithms.shared_head import SharedHead
from hpcfl.config.train import TrainConfig
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Payload, Rows, class_rows
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototypes import ClassMeans
from hpcfl.training.local_client import LocalClient
from hpcfl.utils.accelerator import to_device, to_host


class FedGh(SharedHead):
    """Cross-entropy on the clients; the prototypes of their trained networks train the server's head."""

    passes_after_training = 1

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        self.steps, self.loss = 0, np.nan

    def upload_arrays(self) -> Sequence[Array]:
        return [Rows("prototypes", *self.plan.dims)]

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        means = ClassMeans(*self.plan.dims, device=self.device)
        for z_BD, y_B in client.features():
            means.add(z_BD, y_B)
        return {"prototypes": means.prototypes()}

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        """Trains the head by a new SGD."""
        self.steps, self.loss = 0, np.nan
        if not uploads:
            return last
        parameters = list(self.head.parameters())
        with torch.no_grad():
            for parameter, value in zip(parameters, self.head_values(last), strict=True):
                parameter.copy_(to_device(value, self.server_device))
        rows = [class_rows(upload.payload, "prototypes") for upload in uploads]
        config, options = self.plan.config, self.options
        settings = TrainConfig(
            lr=options.server_lr,
            epochs=options.server_epochs,
            batch_size=options.server_batch or config.train.batch_size,
        )
        self.steps, mean_loss = train_classifier(self.head, settings, rows, config.seed, t)
        loss, *values = to_host(mean_loss, *parameters)
        self.loss = loss.item()
        return {name: value.clone() for name, value in zip(self.names, values, strict=True)}

    def server_flops(self, clients: Sequence[int]) -> float:
        """Returns the FLOPs of training the head."""
        uploads = int((self.plan.class_counts_MK[[*clients]] > 0).sum())
        return (1 + BACKWARD) * self.options.server_epochs * uploads * self.head_flops

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        return {"/refine/iterations": self.steps, "/refine/loss": self.loss}
