"""A classifier that rank 0 trains on uploaded prototypes: FedGH's head, and that of FedMPS's soft labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hpcfl.config.train import TrainConfig
from hpcfl.exchange.payload import ClassRows
from hpcfl.exchange.payload_tensors import present_rows
from hpcfl.training.step.optimizer import Optimizer
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device


def train_classifier(
    classifier: nn.Module, settings: TrainConfig, uploads: Sequence[ClassRows], seed: int, t: int
) -> tuple[int, Tensor]:
    """Trains by a new optimiser; returns the number of steps, and the mean loss of the last epoch.

    The last, smaller batch is used too.
    """
    optimizer = Optimizer(classifier, settings)
    device = optimizer.parameters[0].device
    z_RD, y_R = (to_device(part, device) for part in present_rows(uploads))
    steps, total = 0, torch.zeros((), dtype=torch.float64, device=device)
    for epoch in range(settings.epochs):
        order = seeds.generator(seed, "server shuffle", t, epoch).permutation(len(y_R))
        total.zero_()
        for which_B in to_device(torch.from_numpy(order), device).split(settings.batch_size):
            loss = cross_entropy(classifier(z_RD[which_B]), y_R[which_B])
            optimizer.step(loss)
            total += loss.detach() * len(which_B)
            steps += 1
    return steps, total / len(y_R)
