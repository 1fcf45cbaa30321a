"""FedGen: the server trains a generator of features, and clients train their heads on what it generates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, one_hot

from hpcfl.algorithms.algorithm import BACKWARD, Values
from hpcfl.algorithms.shared_head import SharedHead
from hpcfl.config.train import TrainConfig
from hpcfl.errors import BadInput
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload, tensor
from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.costs import linear_flops
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.local_client import LocalClient
from hpcfl.training.state import Block
from hpcfl.training.step.optimizer import Optimizer
from hpcfl.training.step.step import BatchOutputs, LossTerms
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import in_float64, to_device, to_host


def generator(classes: int, features: int, noise: int) -> nn.Sequential:
    """Returns a network from noise and a one-hot label to features.

    It is always in train mode, so its batch-norm needs no running statistics, and none travel.
    """
    return nn.Sequential(
        nn.Linear(noise + classes, features),
        nn.BatchNorm1d(features, track_running_stats=False),
        nn.ReLU(),
        nn.Linear(features, features),
    )


def inputs(noise_BN: Tensor, y_B: Tensor, classes: int) -> Tensor:
    """Returns the generator's inputs: noise, uniform in [0, 1), and the one-hot label."""
    return torch.cat([noise_BN, one_hot(y_B, classes).to(noise_BN)], dim=1)


class FedGen(SharedHead):
    """CE + CE(head(G(ε, y)), y) on the clients; the server averages heads by samples and trains G on them.

    G is kept from round to round. A client uploads its samples per class once; labels are drawn from the
    pooled counts of the clients seen so far.
    """

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        if plan.config.train.batch_size == 1:
            raise BadInput("train.batch_size = 1: fedgen's generator has batch-norm and needs at least 2")
        seed_torch(seeds.key(plan.config.seed, "start generator"), torch.device("cpu"))
        self.generator = generator(*plan.dims, self.options.noise).to(self.server_device)
        self.received = generator(*plan.dims, self.options.noise).to(device).requires_grad_(False)
        """The generator of the last download, which clients use."""
        self.generator_names = [f"generator.{name}" for name, _ in self.generator.named_parameters()]
        self.counts_MK = torch.zeros(len(plan.clients), plan.dims[0], dtype=torch.int64)
        self.steps = 0
        self.loss: float | Tensor = np.nan

    @property
    def is_linear(self) -> bool:
        """Whether heads are one linear layer: a weight and a bias."""
        return len(self.names) == 2

    def download_arrays(self) -> Sequence[Array]:
        parameters = zip(self.generator_names, self.generator.parameters(), strict=True)
        return [
            *self.arrays,
            *(Dense(name, tuple(parameter.shape)) for name, parameter in parameters),
            Dense("labels", (self.plan.dims[0],), torch.int64, counted=False),
        ]

    def upload_arrays(self) -> Sequence[Array]:
        return [*self.arrays, Dense("counts", (self.plan.dims[0],), torch.int64, counted=False)]

    def blocks(self, architecture: str) -> Sequence[Block]:
        return [Block("counts_sent", torch.bool, ())]

    # --- clients

    @torch.no_grad()
    def receive(self, download: Payload) -> Payload:
        for name, parameter in zip(self.generator_names, self.received.parameters(), strict=True):
            if name in download:
                parameter.copy_(tensor(download, name))
        return download

    def local_loss(self, client: LocalClient, download: Payload) -> LossTerms | None:
        """Random numbers come from torch's global generator, which is seeded by client and round."""
        if "labels" not in download:
            return None
        classes, batch = self.plan.dims[0], self.plan.config.train.batch_size
        share_K = in_float64(tensor(download, "labels"))

        def loss(outputs: BatchOutputs) -> dict[str, tuple[float, Tensor]]:
            y_B = torch.multinomial(share_K, batch, replacement=True).to(self.device)
            noise_BN = torch.rand(batch, self.options.noise, device=self.device)
            z_BD = self.received(inputs(noise_BN, y_B, classes))
            return {"generated": (self.options.weight, cross_entropy(client.step.logits(z_BD), y_B))}

        return loss

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        payload = dict(self.head_payload(client.network.head))
        if not client.saved("counts_sent"):
            client.blocks["counts_sent"].fill_(True)
            payload["counts"] = client.count_K
        return payload

    def client_flops(self, client: int) -> float:
        """Returns the FLOPs of generating features, and of training the head on them."""
        if self.options.generator == "none":
            return 0.0
        train = self.plan.config.train
        batches = train.epochs * math.ceil(self.plan.samples_per_epoch(client) / train.batch_size)
        head = (1 + BACKWARD) * self.head_flops
        return batches * train.batch_size * (linear_flops(self.generator) + head)

    # --- the server

    def server_flops(self, clients: Sequence[int]) -> float:
        """Returns the FLOPs of training the generator; through heads only the features' gradients flow."""
        if self.options.generator != "trained":
            return 0.0
        heads = 2 * self.head_flops * (1 if self.is_linear else len(clients))
        labels = self.options.server_steps * self.plan.config.train.batch_size
        return labels * ((1 + BACKWARD) * linear_flops(self.generator) + heads)

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        self.steps, self.loss = 0, np.nan
        self.receive_late(uploads)
        if not uploads:
            return last
        count_U = self.counts_MK[[upload.client for upload in uploads]].sum(1).double()
        weight_U = (count_U / count_U.sum()).tolist()
        head = self.mean_head(uploads, weight_U)
        if self.options.generator == "none":
            return head
        if self.options.generator == "trained":
            self._train(t, head, uploads, weight_U)
        loss, *values = to_host(torch.as_tensor(self.loss), *self.generator.parameters())
        self.loss = loss.item()
        sent = {name: value.clone() for name, value in zip(self.generator_names, values, strict=True)}
        return {**head, **sent, "labels": self.counts_MK.sum(0)}

    def receive_late(self, uploads: Sequence[ClientUpload]) -> None:
        """Takes the samples per class, which a client sends only once."""
        for upload in uploads:
            if "counts" in upload.payload:
                self.counts_MK[upload.client] = tensor(upload.payload, "counts")

    def _train(self, t: int, head: Payload, uploads: Sequence[ClientUpload], weight_U: list[float]) -> None:
        """Trains the generator by a new Adam: CE of the mean of the heads' logits, weighted by samples."""
        classes, batch = self.plan.dims[0], self.plan.config.train.batch_size
        steps, rng = self.options.server_steps, seeds.generator(self.plan.config.seed, "generator", t)
        count_K = self.counts_MK.sum(0).numpy()
        y_SB = torch.from_numpy(rng.choice(classes, (steps, batch), p=count_K / count_K.sum()))
        y_SB = to_device(y_SB, self.server_device)
        noise_SBN = torch.from_numpy(rng.random((steps, batch, self.options.noise), dtype=np.float32))
        noise_SBN = to_device(noise_SBN, self.server_device)
        if self.is_linear:  # the mean of the logits of linear heads is the logits of the mean head
            uploaded, weight_U = [head], [1.0]
        else:
            uploaded = [upload.payload for upload in uploads]
        heads = [
            [to_device(value, self.server_device) for value in self.head_values(payload)]
            for payload in uploaded
        ]
        adam = Optimizer(self.generator, TrainConfig(optimizer="adam", lr=self.options.server_lr))
        losses = []
        for noise_BN, y_B in zip(noise_SBN, y_SB, strict=True):
            z_BD = self.generator(inputs(noise_BN, y_B, classes))
            logits = [weight * self._logits(each, z_BD) for weight, each in zip(weight_U, heads, strict=True)]
            loss = cross_entropy(torch.stack(logits).sum(0), y_B)
            adam.step(loss)
            losses.append(loss.detach().double())
        self.steps, self.loss = steps, torch.stack(losses).mean()

    def _logits(self, values: list[Tensor], z_BD: Tensor) -> Tensor:
        """Returns the logits of a client's head, given its parameters."""
        names = [name for name, _ in self.head.named_parameters()]
        logit_BK: Tensor = functional_call(self.head, dict(zip(names, values, strict=True)), z_BD)
        return logit_BK

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        return {"/refine/iterations": self.steps, "/refine/loss": self.loss}

    def state(self) -> Mapping[str, Tensor]:
        parameters = zip(self.generator_names, self.generator.parameters(), strict=True)
        return {"counts": self.counts_MK, **{name: parameter.detach() for name, parameter in parameters}}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, value in self.state().items():
            value.copy_(state[name])
