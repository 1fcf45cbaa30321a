"""A plain training loop for comparison: a module, torch's SGD, a client's samples as tensors in memory."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from hpcfl.config.train import TrainConfig
from hpcfl.federation.run_plan import Client, RunPlan
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.methods.prototypes import Prototypes
from hpcfl.models.network import Network
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.epochs import batches
from hpcfl.training.learning_rate import learning_rate
from hpcfl.training.local_client import order_of_samples
from hpcfl.training.samples import SampleSource
from hpcfl.utils import seeds


class PlainLoop:
    """Local training, prototype pass and evaluation of one client."""

    def __init__(self, plan: RunPlan, client: Client, network: Network, device: torch.device):
        self.plan, self.client, self.network = plan, client, network
        source = SampleSource(plan.data, plan.config.data, device)
        (self.x_N, self.y_N), (self.test_N, _) = (
            samples.batch(np.arange(len(samples)))
            for samples in (source.samples(client.train), source.samples(client.test))
        )

    def round(self, t: int, method: PrototypeMethod, target: Prototypes) -> float:
        """Runs a round with the same batches and passes as hpcfl, and returns the mean loss."""
        config, network, classes = self.plan.config, self.network, self.plan.dims[0]
        optimiser = _optimiser(network, self.plan.train, t)
        seed_torch(seeds.key(config.seed, "train", self.client.id, t), self.x_N.device)
        network.train()
        counts_K = torch.from_numpy(self.plan.class_counts_MK[self.client.id])
        local_loss = method.local_loss.bind(t, target, counts_K.to(self.x_N.device))
        total = torch.zeros((), dtype=torch.float64, device=self.x_N.device)
        for epoch in range(config.train.epochs):
            order = order_of_samples(config, self.client.id, t, epoch).permutation(len(self.x_N))
            settings = config.train
            for which in batches(order, settings.batch_size, network.has_batch_norm, settings.drop_last):
                row_B = torch.from_numpy(which)
                x_B, y_B = self.x_N[row_B], self.y_N[row_B]
                with network.frozen_batch_norm() if len(which) == 1 else nullcontext():
                    z_BD = network.extractor(x_B)
                loss = cross_entropy(network.head(z_BD), y_B)
                loss = loss + sum(weight * term for weight, term in local_loss(z_BD, y_B).values())
                optimiser.zero_grad()
                loss.backward()
                if self.plan.train.clip_norm:
                    torch.nn.utils.clip_grad_norm_(network.parameters(), self.plan.train.clip_norm)
                optimiser.step()
                total += loss.detach() * len(which)
        network.eval()
        with torch.no_grad():
            sum_KD = torch.zeros(self.plan.dims, device=self.x_N.device)
            if config.method.prototypes != "running":
                for part in self._in_order(len(self.x_N)):
                    sum_KD.index_add_(0, self.y_N[part], network.extractor(self.x_N[part]))
            mean_KD = sum_KD / torch.bincount(self.y_N, minlength=classes).clamp_min(1)[:, None]
            for part in self._in_order(len(self.test_N)):
                z_BD = network.extractor(self.test_N[part])
                network.head(z_BD).argmax(1)
                torch.cdist(z_BD, mean_KD).argmin(1)
        return total.item() / (self.plan.samples_per_epoch(self.client.id) * config.train.epochs)

    def _in_order(self, samples: int) -> list[slice]:
        """Returns the slices of the inference batches."""
        batch = self.plan.config.runtime.inference_batch
        return [slice(start, start + batch) for start in range(0, samples, batch)]


def _optimiser(network: Network, settings: TrainConfig, t: int) -> torch.optim.Optimizer:
    """Returns torch's optimiser for round t."""
    lr, decay = learning_rate(settings, t), settings.weight_decay
    if settings.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), lr, settings.momentum, weight_decay=decay)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(network.parameters(), lr, weight_decay=decay)
