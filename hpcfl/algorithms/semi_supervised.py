"""Semi-supervised training on a client's unlabelled samples, FedSAP Eq. (10)-(14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.pseudo_labels import PseudoLabels, accept, pseudo_labels, thresholds
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

    def active_set(
        self,
        t: int,
        i: int,
        step: Step,
        unlabelled: ClientSamples,
        own: Prototypes,
        limits: Tensor | ClientSamples,
    ) -> tuple[ActiveSet, Tensor]:
        """Returns the samples accepted by client i in round t, and its thresholds: Eq. (10), (11).

        `own` are the prototypes of its classes. `limits` are the thresholds, or in its first round of the
        phase the labelled samples that they follow from. Features are computed in eval mode, of weak views.

        The number of accepted samples decides the batches that follow. So the host waits for the device here,
        but only once.
        """
        weak = augmentation_of(self.plan, i, t, 0, WEAK, self.weak)
        labels = pseudo_labels(self._features(step, unlabelled, own, weak), own)
        on_device = [labels.class_N, labels.distance_N, labels.margin_N]
        if isinstance(limits, Tensor):
            on_host, thresholds_2 = to_host(*on_device), limits
        else:
            z_ND = self._features(step, limits, own)
            *on_host, z_ND, value_KD, present_K = to_host(*on_device, z_ND, own.value_KD, own.present_K)
            quantiles = self.spec.margin_quantile, self.spec.distance_quantile
            own = Prototypes(value_KD, present_K)
            thresholds_2 = thresholds(z_ND, limits.host_labels_N, own, *quantiles)
        labels = PseudoLabels(*on_host)
        accepted_N = accept(labels, thresholds_2)
        label_N = labels.class_N[accepted_N]
        samples = replace(unlabelled, index_N=unlabelled.index_N[accepted_N])
        correct = int((label_N == samples.host_labels_N).sum())
        return ActiveSet(samples, to_device(label_N, samples.source.device), correct), thresholds_2

    def _features(
        self, step: Step, samples: ClientSamples, own: Prototypes, augment: Augmentation | None = None
    ) -> Tensor:
        """Returns the features of all samples; there may be none."""
        found = features(step, samples, self.batch, augment) if len(samples) else ()
        return torch.cat([own.value_KD[:0], *(z_BD for z_BD, _ in found)])

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
