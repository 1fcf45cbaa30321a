"""Passes of a network over a client's samples: epochs of training, and features in eval mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.infer import num_correct
from hpcfl.training.augmentation import Augmentation
from hpcfl.training.samples import ClientSamples
from hpcfl.training.step.joint import JointStep
from hpcfl.training.step.step import Batch, BatchOutputs, LossTerms, Step


def batches(order: np.ndarray, size: int, merge_single: bool) -> list[np.ndarray]:
    """Returns the order split into batches; if `merge_single`, a last batch of one sample joins the previous.

    That is for batch-norm, which cannot normalise a single sample; other batches of one sample use
    `Network.frozen_batch_norm`.
    """
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
) -> dict[str, float]:
    """Trains in place and returns the mean loss per sample, its terms, ProtoNorm Eq. (4), and the accuracy.

    `train_accuracy` is that of the head over the same batches as the loss: all batches of all epochs, in
    train mode, each before its step.

    `shuffle`, `augmentation` and `strong_batches` give, for an epoch, the random generator, the augmentation,
    and batches of strong views with pseudo-labels. `observe`, if given, is called with the outputs of every
    batch. `measure_ratios` adds the gradient norms of the terms by that of the cross-entropy.
    """
    settings = step.settings
    step.begin(local_loss, measure_ratios)
    total_T: Tensor | None = None
    predicted, labels = [], []  # compared at the end, so that a batch costs one argmax and no wait
    for epoch in range(settings.epochs):
        order = shuffle(epoch).permutation(len(samples))
        augment = augmentation(epoch) if augmentation else None
        strong = strong_batches(epoch) if strong_batches else None
        for which in batches(order, settings.batch_size, step.has_batch_norm):
            x_B, y_B = samples.batch(which, augment)
            terms, outputs = step(x_B, y_B, next(strong) if strong else None)
            term_T = torch.stack(list(terms.values())).double() * len(which)
            total_T = term_T if total_T is None else total_T + term_T
            predicted.append(outputs.logit_BK.argmax(1))
            labels.append(y_B)
            if observe is not None:
                observe(outputs)
    ratios = {f"gradient_{name}": float(ratio) for name, ratio in (step.ratios or {}).items()}
    step.end()
    assert total_T is not None
    means = dict(zip(terms, (total_T / (len(samples) * settings.epochs)).tolist(), strict=True))
    accuracy = num_correct(torch.cat(predicted), torch.cat(labels)) / (len(samples) * settings.epochs)
    return means | ratios | {"train_accuracy": accuracy if math.isfinite(means["loss"]) else math.nan}


@torch.no_grad()
def features(
    step: Step, samples: ClientSamples, batch: int, augment: Augmentation | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields features in eval mode and labels, batch by batch, in order."""
    step.network.eval()
    for which_B in batches(np.arange(len(samples)), batch, merge_single=False):
        x_B, y_B = samples.batch(which_B, augment)
        yield step.features(x_B), y_B
