"""Semi-supervised training on a client's unlabelled samples, FedSAP Eq. (10)-(14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.pseudo_labels import accept, pseudo_labels, thresholds
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.training.augmentation import STRONG, WEAK, Augmentation, augmentation_of
from hpcfl.training.epochs import features
from hpcfl.training.samples import ClientSamples
from hpcfl.training.step.step import Batch, Step
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device, to_host


def weak_augmentation(characters: bool) -> tuple[str, ...]:
    """Returns the steps of the weak augmentation; letters and digits must not be flipped."""
    return ("crop",) if characters else ("crop", "flip")


@dataclass(frozen=True)
class ActiveSet:
    """The unlabelled samples accepted in a round, their pseudo-labels, and how many of these are correct."""

    samples: ClientSamples
    label_N: Tensor
    num_correct: int

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, size: int, rng: np.random.Generator, augment: Augmentation | None) -> Iterator[Batch]:
        """Yields augmented batches with pseudo-labels without end, in a new random order for each pass."""
        size = min(size, len(self))
        remaining = np.zeros(0, dtype=np.int64)
        while True:
            if len(remaining) < size:
                remaining = np.concatenate([remaining, rng.permutation(len(self))])
            which_B, remaining = remaining[:size], remaining[size:]
            x_B, _ = self.samples.batch(which_B, augment)
            yield x_B, self.label_N[to_device(torch.from_numpy(which_B), self.label_N.device)]


class SemiSupervised:
    """The semi-supervised phase, for all clients of a rank."""

    def __init__(self, plan: RunPlan, spec: PrototypeSpec):
        self.plan, self.spec = plan, spec
        self.batch = plan.config.runtime.inference_batch
        self.weak = weak_augmentation(plan.has_characters)

    def calibrate(self, step: Step, labelled: ClientSamples, own: Prototypes) -> Tensor:
        """Returns a client's thresholds, on the host, from labelled samples and its classes' prototypes."""
        z_ND = torch.cat([z_BD for z_BD, _ in features(step, labelled, self.batch)])
        z_ND, *rows = to_host(z_ND, own.value_KD, own.present_K)
        quantiles = self.spec.margin_quantile, self.spec.distance_quantile
        return thresholds(z_ND, labelled.host_labels_N, Prototypes(*rows), *quantiles)

    def active_set(
        self, t: int, i: int, step: Step, unlabelled: ClientSamples, own: Prototypes, thresholds_2: Tensor
    ) -> ActiveSet:
        """Returns the samples accepted by client i in round t: Eq. (10), (11) on weak views, in eval mode."""
        weak = augmentation_of(self.plan, i, t, 0, WEAK, self.weak)
        labels = pseudo_labels(
            torch.cat([z_BD for z_BD, _ in features(step, unlabelled, self.batch, weak)]), own
        )
        accepted_N = accept(labels, to_device(thresholds_2, labels.margin_N.device))
        # their number decides the batches that follow, so the host has to know it here
        accepted_N, label_N = to_host(accepted_N, labels.class_N)
        samples, label_N = replace(unlabelled, index_N=unlabelled.index_N[accepted_N]), label_N[accepted_N]
        correct = int((label_N == samples.host_labels_N).sum())
        return ActiveSet(samples, to_device(label_N, samples.source.device), correct)

    def batches(self, active: ActiveSet, t: int, i: int, epoch: int) -> Iterator[Batch]:
        """Yields batches of strong views with pseudo-labels, as large as the labelled ones, without end."""
        config = self.plan.config
        rng = seeds.generator(config.seed, "strong", i, t, epoch)
        return active.batches(config.train.batch_size, rng, self._strong(t, i, epoch))

    def add_to_means(self, active: ActiveSet, t: int, i: int, step: Step, means: ClassMeans) -> None:
        """Adds the features of strong views to the class means: Eq. (14).

        Running means contain every labelled sample once per epoch, so the weight is multiplied by epochs.
        """
        config = self.plan.config
        weight = self.spec.mix * (config.train.epochs if config.method.prototypes == "running" else 1)
        start = 0
        for z_BD, _ in features(step, active.samples, self.batch, self._strong(t, i, 0)):
            means.add_weighted(z_BD, active.label_N[start : start + len(z_BD)], weight)
            start += len(z_BD)

    def _strong(self, t: int, i: int, epoch: int) -> Augmentation | None:
        return augmentation_of(self.plan, i, t, epoch, STRONG, (*self.weak, "randaugment"))
