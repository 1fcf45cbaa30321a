"""A client while its state is in this rank's buffer: what an algorithm reads, changes and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hpcfl.config.schema import Config
from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network
from hpcfl.training.augmentation import TRAINING, augmentation_of
from hpcfl.training.bound_network import BoundNetwork
from hpcfl.training.epochs import features, train_epochs
from hpcfl.training.losses import PendingLosses
from hpcfl.training.samples import ClientSamples, SampleSource
from hpcfl.training.step.joint import JointStep
from hpcfl.training.step.step import Batch, BatchOutputs, LossTerms, Step
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device

Part = Literal["train", "test", "unlabelled", "validation"]
Losses = PendingLosses | dict[str, float]
"""The mean loss per sample (`loss`), its unweighted terms, and the accuracy by head (`train_accuracy`).

Each is logged if a metric has its name."""


@dataclass(frozen=True)
class LocalClient:
    """Client `id` in round `round` (from 0)."""

    round: int
    id: int
    plan: RunPlan
    bound: BoundNetwork
    source: SampleSource
    metrics: np.ndarray
    """Values of this client for the log: `client.metrics[name] = value`."""
    saved: Callable[[str], Tensor]
    """Returns a block of the state as it was before this round, on the host: reading it waits for nothing."""
    measured: dict[str, Tensor] = field(default_factory=dict)
    """Values on the device that become `metrics` once the client's upload is on the host."""

    @property
    def network(self) -> Network:
        """Its network: `extractor` and `head`."""
        return self.bound.step.network

    @property
    def step(self) -> Step:
        return self.bound.step

    @property
    def extra_steps(self) -> Mapping[str, Step]:
        """The training steps of the further networks that the algorithm declares, by name."""
        return self.bound.extra_steps

    @property
    def blocks(self) -> Mapping[str, Tensor]:
        """Its state: the network's parameters and buffers, and the blocks that the algorithm declares."""
        return self.bound.views

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def count_K(self) -> Tensor:
        """Its training samples per class."""
        return to_device(torch.from_numpy(self.plan.class_counts_MK[self.id]), self.device)

    def samples(self, part: Part = "train") -> ClientSamples:
        """Returns its samples of a part of the split."""
        index_N: np.ndarray = getattr(self.plan.clients[self.id].split, part)
        return self.source.samples(index_N, self.step.options.memory_format)

    def features(self, part: Part = "train") -> Iterator[Batch]:
        """Yields features in eval mode and labels, batch by batch, in order."""
        return features(self.step, self.samples(part), self.plan.config.runtime.inference_batch)

    def train(
        self,
        loss: LossTerms | None = None,
        observe: Callable[[BatchOutputs], None] | None = None,
        strong_batches: Callable[[int], Iterator[Batch]] | None = None,
        measure_ratios: bool = False,
        step: Step | JointStep | None = None,
    ) -> Losses:
        """Trains the network for the configured epochs: the cross-entropy and the terms of `loss`.

        `observe` gets the outputs of every batch, `strong_batches` gives strong views for an epoch;
        `measure_ratios` adds each term's gradient norm ÷ that of the cross-entropy; `step` is taken instead
        of the network's own.
        """
        config = self.plan.config
        return train_epochs(
            step or self.step,
            self.samples(),
            loss,
            lambda epoch: order_of_samples(config, self.id, self.round, epoch),
            observe,
            lambda epoch: augmentation_of(
                self.plan, self.id, self.round, epoch, TRAINING, config.train.augment
            ),
            strong_batches,
            measure_ratios,
        )


def order_of_samples(config: Config, client: int, t: int, epoch: int) -> np.random.Generator:
    """Returns the generator of the order of a client's samples in an epoch of round t."""
    if config.train.shuffle:
        return seeds.generator(config.seed, "shuffle", client, t, epoch)
    return seeds.generator(config.seed, "order", client)
