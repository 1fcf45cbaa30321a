"""Datasets of the papers without their images: what a plan needs to know of one that is not prepared."""

from __future__ import annotations

import numpy as np

from hpcfl.config.data import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.data.load import load_dataset
from hpcfl.data.sources.registry import PUBLISHED_FORMS
from hpcfl.errors import BadInput

SIZES = {
    "cifar10": ((32, 32, 3), 10, 6000, 5000),
    "cifar100": ((32, 32, 3), 100, 600, 500),
    "fmnist": ((28, 28, 1), 10, 7000, 6000),
    "flowers102-squash": ((64, 64, 3), 102, 80, 60),
    "tinyimagenet-train": ((64, 64, 3), 200, 500, 500),
    "femnist-128": ((128, 128, 1), 62, 5000, 4500),
}
"""Shape, classes, images of a class (flowers, femnist: about the mean), how many of them for training."""


def dataset_or_stand_in(settings: DataConfig) -> Dataset:
    """Returns the dataset if it is built in or prepared, else one of its size that takes no memory."""
    try:
        return load_dataset(settings)
    except BadInput:
        if settings.name not in SIZES:
            raise
    shape, classes, images, train = SIZES[settings.name]
    y = np.concatenate([np.repeat(np.arange(classes), n) for n in (train, images - train)])
    x = np.broadcast_to(np.uint8(0), (len(y), *shape))
    original = {"original": PUBLISHED_FORMS.get(settings.name, (settings.name,))[0]}
    names = tuple(f"class {k}" for k in range(classes))
    return Dataset(x, y, names, classes * train, "stand-in", provenance=original)
