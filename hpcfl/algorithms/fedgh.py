"""FedGH: the server trains a head on the clients' prototypes, and sends it to all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.algorithms.algorithm import Values
from hpcfl.algorithms.shared_head import SharedHead
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Payload, Rows, class_rows
from hpcfl.exchange.payload_tensors import present_rows
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototypes import ClassMeans
from hpcfl.training.local_client import LocalClient
from hpcfl.utils import seeds
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
        """Trains the head by a new SGD; the last, smaller batch is used too."""
        self.steps, self.loss = 0, np.nan
        if not uploads:
            return last
        parameters: list[Tensor] = list(self.head.parameters())
        with torch.no_grad():
            for parameter, value in zip(parameters, self.head_values(last), strict=True):
                parameter.copy_(to_device(value, self.server_device))
        rows = [class_rows(upload.payload, "prototypes") for upload in uploads]
        z_RD, y_R = (to_device(part, self.server_device) for part in present_rows(rows))
        seed, batch_size = (
            self.plan.config.seed,
            self.options.server_batch or self.plan.config.train.batch_size,
        )
        for epoch in range(self.options.server_epochs):
            order = seeds.generator(seed, "server shuffle", t, epoch).permutation(len(y_R))
            total = torch.zeros((), dtype=torch.float64, device=self.server_device)
            for which_B in to_device(torch.from_numpy(order), self.server_device).split(batch_size):
                loss = cross_entropy(self.head(z_RD[which_B]), y_R[which_B])
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    torch._foreach_add_(parameters, gradients, alpha=-self.options.server_lr)
                total += loss.detach() * len(which_B)
                self.steps += 1
        total, *values = to_host(total, *parameters)
        self.loss = total.item() / len(y_R)
        return {name: value.clone() for name, value in zip(self.names, values, strict=True)}

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        return {"/refine/iterations": self.steps, "/refine/loss": self.loss}
