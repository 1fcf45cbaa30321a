"""One client's work: local training, its prototypes, its look at the test data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.prototypes import ClassMeans
from hpcfl.training.augmentation import Augmentation
from hpcfl.training.samples import ClientSamples
from hpcfl.training.step.step import LossTerms, Pair, Step


def batches(order: np.ndarray, size: int, merge_single: bool) -> list[np.ndarray]:
    """Returns the order cut into batches; a last batch of one joins the one before if `merge_single`.

    Batch-norm learns nothing from a single sample (where that is all there is, it uses what it learned so
    far); every other network trains on all batches as they come.
    """
    cuts = list(range(size, len(order), size))
    if merge_single and size > 1 and cuts and len(order) - cuts[-1] == 1:
        cuts.pop()
    return np.split(order, cuts)


def train(
    step: Step,
    samples: ClientSamples,
    local_loss: LossTerms | None,
    shuffle: Callable[[int], np.random.Generator],
    seen: ClassMeans | None = None,
    view: Callable[[int], Augmentation | None] | None = None,
    strong: Callable[[int], Iterator[Pair]] | None = None,
) -> dict[str, float]:
    """Trains in place and returns the mean loss per sample and its parts: ProtoNorm Eq. (4).

    `shuffle` gives an epoch's generator, `view` how its images are changed, `strong` its strong views of
    pseudo-labelled samples, batch by batch; `seen`, if given, collects the features met on the way.
    """
    settings = step.settings
    step.begin(local_loss)
    total_P: Tensor | None = None
    for epoch in range(settings.epochs):
        order, look = shuffle(epoch).permutation(len(samples)), view(epoch) if view else None
        others = strong(epoch) if strong else None
        for which in batches(order, settings.batch_size, step.network.has_batch_norm):
            x_B, y_B = samples.batch(which, look)
            parts, z_BD = step(x_B, y_B, next(others) if others else None)
            part_P = torch.stack(list(parts.values())).double() * len(which)
            total_P = part_P if total_P is None else total_P + part_P
            if seen is not None:
                seen.add(z_BD, y_B)
    ratios = {f"gradient_{name}": float(ratio) for name, ratio in (step.ratios or {}).items()}
    step.end()
    assert total_P is not None
    means = total_P / (len(samples) * settings.epochs)
    return dict(zip(parts, means.tolist(), strict=True)) | ratios


@torch.no_grad()
def features(
    step: Step, samples: ClientSamples, batch: int, view: Augmentation | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields features and labels in eval mode, in order, a batch at a time."""
    step.network.eval()
    for which_B in batches(np.arange(len(samples)), batch, merge_single=False):
        x_B, y_B = samples.batch(which_B, view)
        yield step.features(x_B), y_B
