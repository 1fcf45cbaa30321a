"""What one writes without hpcfl: a module, torch's SGD, a client's samples as tensors in memory."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from hpcfl import seeds
from hpcfl.client import batches
from hpcfl.federation import Client, Federation
from hpcfl.methods.method import Method
from hpcfl.methods.prototypes import Prototypes
from hpcfl.models.network import Network
from hpcfl.samples import Source


class Plain:
    """Local training, the pass for prototypes and the look at test data of one client, round after round."""

    def __init__(self, fed: Federation, client: Client, network: Network, device: torch.device):
        self.fed, self.client, self.network = fed, client, network
        source = Source(fed.data, fed.config.data, device)
        (self.x, self.y), (self.x_test, self.y_test) = (
            samples.batch(np.arange(len(samples)))
            for samples in (source.samples(client.train), source.samples(client.test))
        )

    def round(self, t: int, method: Method, target: Prototypes) -> float:
        """Returns the mean loss; the same batches as hpcfl's, the same passes."""
        config, network, classes = self.fed.config, self.network, self.fed.dims[0]
        optimiser = torch.optim.SGD(network.parameters(), config.train.lr, config.train.momentum)
        torch.manual_seed(seeds.key(config.seed, "train", self.client.id, t))
        network.train()
        total = torch.zeros((), dtype=torch.float64, device=self.x.device)
        for epoch in range(config.train.epochs):
            shuffle = seeds.generator(config.seed, "shuffle", self.client.id, t, epoch)
            order = shuffle.permutation(len(self.x))
            for which in batches(order, config.train.batch_size, network.has_batch_norm):
                x, y = self.x[which], self.y[which]
                z = network.extractor(x)
                loss = cross_entropy(network.head(z), y) + method.guide(z, y, target)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.detach() * len(which)
        network.eval()
        with torch.no_grad():
            sums = torch.zeros(self.fed.dims, device=self.x.device)
            for which in self._in_order(len(self.x)):
                sums.index_add_(0, self.y[which], network.extractor(self.x[which]))
            counts = torch.bincount(self.y, minlength=classes)
            prototypes = sums / counts.clamp_min(1)[:, None]
            for which in self._in_order(len(self.x_test)):
                z = network.extractor(self.x_test[which])
                network.head(z).argmax(1)
                torch.cdist(z, prototypes).argmin(1)
        return total.item() / (len(self.x) * config.train.epochs)

    def _in_order(self, samples: int) -> list[np.ndarray]:
        return batches(np.arange(samples), self.fed.config.runtime.inference_batch, merge_single=False)
