"""Passes of a network over a client's samples: epochs of training, and features in eval mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.infer import num_correct
from hpcfl.training.augmentation import Augmentation
from hpcfl.training.losses import PendingLosses
from hpcfl.training.samples import ClientSamples
from hpcfl.training.step.joint import JointStep
from hpcfl.training.step.step import Batch, BatchOutputs, LossTerms, Step


def batches(order: np.ndarray, size: int, merge_single: bool, drop_last: bool = False) -> list[np.ndarray]:
    """Returns the order split into batches; if `merge_single`, a last batch of one sample joins the previous.

    That is for batch-norm, which cannot normalise a single sample; other batches of one sample use
    `Network.frozen_batch_norm`. With `drop_last` a last, smaller batch is left out.
    """
    if drop_last:
        order = order[: len(order) - len(order) % size]
    cuts = list(range(size, len(order), size))
    if merge_single and size > 1 and cuts and len(order) - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)


def train_epochs(
    step: Step | JointStep,
    samples: ClientSamples,
    local_loss: LossTerms | None,
    shuffle: Callable[[int], np.random.Generator],
    observe: Callable[[BatchOutputs], None] | None = None,
    augmentation: Callable[[int], Augmentation | None] | None = None,
    strong_batches: Callable[[int], Iterator[Batch]] | None = None,
    measure_ratios: bool = False,
) -> PendingLosses:
    """Trains in place and returns the mean loss per sample, its terms, ProtoNorm Eq. (4), and the accuracy.

    `train_accuracy` is that of the head over the same batches as the loss: all batches of all epochs, in
    train mode, each before its step.

    `shuffle`, `augmentation` and `strong_batches` give, for an epoch, the random generator, the augmentation,
    and batches of strong views with pseudo-labels. `observe`, if given, is called with the outputs of every
    batch. `measure_ratios` adds the gradient norms of the terms by that of the cross-entropy.
    """
    settings = step.settings
    step.begin(local_loss, measure_ratios)
    terms_ST, sizes = [], []  # of each step; summed on the host at the end, so that no step waits
    predicted, labels = [], []
    for epoch in range(settings.epochs):
        order = shuffle(epoch).permutation(len(samples))
        augment = augmentation(epoch) if augmentation else None
        strong = strong_batches(epoch) if strong_batches else None
        parts = batches(order, settings.batch_size, step.has_batch_norm, settings.drop_last)
        for x_B, y_B in samples.batches(parts, augment):
            terms, outputs = step(x_B, y_B, next(strong) if strong else None)
            terms_ST.append(torch.stack(list(terms.values())))
            sizes.append(len(y_B))
            predicted.append(outputs.logit_BK.argmax(1))
            labels.append(y_B)
            if observe is not None:
                observe(outputs)
    ratios = step.ratios or {}
    correct = num_correct(torch.cat(predicted), torch.cat(labels))
    step.end()
    names = [*terms, *(f"gradient_{name}" for name in ratios), "train_accuracy"]

    def compute(on_host: Sequence[Tensor]) -> dict[str, float]:
        measured_ST, correct, *of_ratios = on_host
        passed = sum(sizes)
        means = [float(total) / passed for total in sum_in_order(measured_ST, sizes)]
        found = dict(zip(names, [*means, *map(float, of_ratios), int(correct) / passed], strict=True))
        return found if math.isfinite(found["loss"]) else found | {"train_accuracy": math.nan}

    return PendingLosses(names, [torch.stack(terms_ST), correct, *ratios.values()], compute)


def sum_in_order(mean_ST: Tensor, sizes: Sequence[int]) -> np.ndarray:
    """Returns the sums over steps of means times batch sizes, added in float64 one after the other."""
    sized_ST = mean_ST.double().numpy() * np.array(sizes, dtype=np.float64)[:, None]
    return np.add.accumulate(sized_ST)[-1]


@torch.no_grad()
def features(
    step: Step, samples: ClientSamples, batch: int, augment: Augmentation | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields features in eval mode and labels, batch by batch, in order."""
    step.network.eval()
    parts = batches(np.arange(len(samples)), batch, merge_single=False)
    for x_B, y_B in samples.batches(parts, augment):
        yield step.features(x_B), y_B
