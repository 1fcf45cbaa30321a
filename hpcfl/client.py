"""One client's work: local training, its prototypes, its look at the test data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.config import Train
from hpcfl.methods.prototypes import ClassMeans
from hpcfl.models.network import Network
from hpcfl.samples import Samples
from hpcfl.views import View

Guide = Callable[[Tensor, Tensor], Tensor]
"""(features, labels) of a batch → the term that is added to its cross-entropy."""


def batches(order: np.ndarray, size: int, merge_single: bool) -> list[np.ndarray]:
    """Returns the order cut into batches; a last batch of one joins the one before if `merge_single`.

    Batch-norm learns nothing from a single sample (where that is all there is, it uses what it learned so
    far); every other network trains on all batches as they come.
    """
    cuts = list(range(size, len(order), size))
    if merge_single and size > 1 and cuts and len(order) - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)


class Sgd:
    """v ← μv + g, w ← w − ηv. torch's own optimisers load its compiler: a second of CPU time per rank."""

    def __init__(self, network: Network, settings: Train):
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        self.velocity: list[Tensor] = []
        self.lr, self.momentum = settings.lr, settings.momentum

    @torch.no_grad()
    def step(self) -> None:
        """Moves the parameters along their gradients, which are then gone."""
        used = [place for place, parameter in enumerate(self.parameters) if parameter.grad is not None]
        moved = [self.parameters[place] for place in used]
        change: list[Tensor] = [parameter.grad for parameter in moved if parameter.grad is not None]
        if self.momentum:
            self.velocity = self.velocity or [torch.zeros_like(parameter) for parameter in self.parameters]
            velocity = [self.velocity[place] for place in used]
            torch._foreach_mul_(velocity, self.momentum)
            torch._foreach_add_(velocity, change)
            change = velocity
        torch._foreach_add_(moved, change, alpha=-self.lr)
        for parameter in moved:
            parameter.grad = None


def train(
    network: Network,
    samples: Samples,
    settings: Train,
    guide: Guide | None,
    shuffle: Callable[[int], np.random.Generator],
    seen: ClassMeans | None = None,
    view: Callable[[int], View] | None = None,
) -> float:
    """Trains in place and returns the mean loss per sample: cross-entropy + guide, ProtoNorm Eq. (4).

    `shuffle` gives an epoch's generator, `view` how its images are changed; `seen`, if given, collects the
    features met on the way.
    """
    network.train()
    optimiser = Sgd(network, settings)
    total = torch.zeros((), dtype=torch.float64, device=samples.source.device)
    for epoch in range(settings.epochs):
        order, look = shuffle(epoch).permutation(len(samples)), view(epoch) if view else None
        for which in batches(order, settings.batch_size, network.has_batch_norm):
            x_B, y_B = samples.batch(which, look)
            with network.for_one_sample() if len(which) == 1 else nullcontext():
                z_BD = network.extractor(x_B)
            loss = cross_entropy(network.head(z_BD), y_B)
            if guide is not None:
                loss = loss + guide(z_BD, y_B)
            loss.backward()
            optimiser.step()
            total += loss.detach() * len(which)
            if seen is not None:
                seen.add(z_BD, y_B)
    return total.item() / (len(samples) * settings.epochs)


@torch.no_grad()
def features(network: Network, samples: Samples, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields features and labels in eval mode, in order, a batch at a time."""
    network.eval()
    for which_B in batches(np.arange(len(samples)), batch, merge_single=False):
        x_B, y_B = samples.batch(which_B)
        yield network.extractor(x_B), y_B
