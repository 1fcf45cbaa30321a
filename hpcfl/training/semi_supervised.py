"""A client's unlabelled samples: pseudo-labels once per round, strong views to train on, mixed prototypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.pseudo_labels import accept, pseudo_labels, thresholds
from hpcfl.training.augmentation import Augmentation
from hpcfl.training.samples import ClientSamples
from hpcfl.training.step.step import Pair, Step
from hpcfl.training.trainer import features
from hpcfl.utils import seeds

TRAINING, WEAK, STRONG = range(3)
"""A sample's views: the one that is trained on, and those of an unlabelled sample."""


def weak_augmentation(characters: bool) -> tuple[str, ...]:
    """Returns the steps of the weak view; mirrored characters would be others."""
    return ("crop",) if characters else ("crop", "flip")


@dataclass(frozen=True)
class ActiveSet:
    """The samples of a round's active set, their pseudo-labels, and how many of these are right."""

    samples: ClientSamples
    label_N: Tensor
    right: int

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, size: int, draw: np.random.Generator, view: Augmentation | None) -> Iterator[Pair]:
        """Yields strong views and pseudo-labels without end: the set in random order, again and again."""
        size = min(size, len(self))
        left = np.zeros(0, dtype=np.int64)
        while True:
            if len(left) < size:
                left = np.concatenate([left, draw.permutation(len(self))])
            which_B, left = left[:size], left[size:]
            x_B, _ = self.samples.batch(which_B, view)
            yield x_B, self.label_N[torch.from_numpy(which_B).to(self.label_N.device)]


def augmentation_of(
    plan: RunPlan, i: int, t: int, epoch: int, which: int, steps: Sequence[str]
) -> Augmentation | None:
    """Returns how a client's images are changed, keyed by round, epoch and view; None: not at all."""
    if not steps or not plan.data.is_images:
        return None
    return Augmentation(seeds.key(plan.config.seed, "view", i, t, epoch, which), steps)


class SemiSupervised:
    """The semi-supervised phase of the clients of a rank."""

    def __init__(self, plan: RunPlan):
        self.plan, self.spec = plan, plan.spec
        self.batch = plan.config.runtime.inference_batch
        self.weak = weak_augmentation(plan.has_characters)

    def calibrate(self, step: Step, labelled: ClientSamples, own: Prototypes) -> Tensor:
        """Returns a client's thresholds, from its labelled samples and the prototypes of its own classes."""
        z_ND = torch.cat([z_BD for z_BD, _ in features(step, labelled, self.batch)])
        quantiles = self.spec.margin_quantile, self.spec.distance_quantile
        return thresholds(z_ND, labelled.labels_N, own, *quantiles)

    def active_set(
        self, t: int, i: int, step: Step, pool: ClientSamples, own: Prototypes, limits_2: Tensor
    ) -> ActiveSet:
        """Returns what client i accepts in round t: Eq. (10), (11) on the weak view, in eval mode."""
        view = augmentation_of(self.plan, i, t, 0, WEAK, self.weak)
        found = pseudo_labels(torch.cat([z_BD for z_BD, _ in features(step, pool, self.batch, view)]), own)
        which = accept(found, limits_2)
        taken = replace(pool, index_N=pool.index_N[which.cpu()])
        label_N = found.class_N[which]
        return ActiveSet(taken, label_N, int((label_N == taken.labels_N).sum()))

    def batches(self, active: ActiveSet, t: int, i: int, epoch: int) -> Iterator[Pair]:
        """Yields strong views and pseudo-labels, as many at a time as labelled samples, without end."""
        config = self.plan.config
        draw = seeds.generator(config.seed, "strong", i, t, epoch)
        return active.batches(config.train.batch_size, draw, self._strong(t, i, epoch))

    def mix(self, active: ActiveSet, t: int, i: int, step: Step, means: ClassMeans) -> None:
        """Adds the strong views' features to the class means: Eq. (14).

        Running means have met every labelled sample once per epoch.
        """
        config = self.plan.config
        weight = self.spec.mix * (config.train.epochs if config.method.prototypes == "running" else 1)
        at = 0
        for z_BD, _ in features(step, active.samples, self.batch, self._strong(t, i, 0)):
            means.mix(z_BD, active.label_N[at : at + len(z_BD)], weight)
            at += len(z_BD)

    def _strong(self, t: int, i: int, epoch: int) -> Augmentation | None:
        return augmentation_of(self.plan, i, t, epoch, STRONG, (*self.weak, "randaugment"))
