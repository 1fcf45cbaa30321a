"""The datasets that can be prepared by name; this module does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hpcfl.data.sources.cifar import cifar
from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.leaf import femnist
from hpcfl.data.sources.mnist import emnist, fashion, mnist
from hpcfl.data.sources.photos import flowers, svhn, tiny
from hpcfl.data.sources.raw_dataset import RawDataset


@dataclass(frozen=True)
class KnownDataset:
    """A dataset that can be prepared by name."""

    about: str
    paper: str
    open: Callable[[SourceFiles], RawDataset]
    characters: bool = False
    """Whether images are letters or digits, which must not be flipped."""
    size: int | None = None
    """Default of `--size`, for images of mixed sizes."""
    train_part: bool = False
    """Whether `--part train` can choose its train part alone."""


EMNIST = {
    "byclass": "62 classes: digits, capital and small letters",
    "bymerge": "47 classes: letters that look alike are one",
    "balanced": "the 47 classes of bymerge, equally many of each",
    "letters": "26 letters",
    "digits": "10 digits",
    "mnist": "10 digits, as many as MNIST",
}

KNOWN_DATASETS = {
    "cifar10": KnownDataset(
        "60000 photographs, 32×32", "FedTGP, FedORGP, ProtoNorm, FedSAP", partial(cifar, name="CIFAR10")
    ),
    "cifar100": KnownDataset(
        "60000 photographs, 32×32", "FedTGP, FedORGP, ProtoNorm, FedSAP", partial(cifar, name="CIFAR100")
    ),
    "fmnist": KnownDataset("70000 clothes, 28×28, gray", "FedTGP, appendix", fashion),
    "mnist": KnownDataset(
        "70000 digits, 28×28, gray", "FedProto", partial(mnist, name="MNIST"), characters=True
    ),
    **{
        f"emnist-{split}": KnownDataset(
            about, "FedSAP (byclass in place of FEMNIST)", partial(emnist, split=split), characters=True
        )
        for split, about in EMNIST.items()
    },
    "femnist": KnownDataset(
        "LEAF's characters by 3500 writers, 28×28, gray", "FedProto, FedSAP", femnist, characters=True
    ),
    "flowers102": KnownDataset("8189 flowers", "FedTGP, FedORGP, ProtoNorm", flowers, size=64),
    "tinyimagenet": KnownDataset(
        "110000 photographs, 64×64", "FedTGP, FedORGP, ProtoNorm", tiny, train_part=True
    ),
    "svhn": KnownDataset("99289 house numbers, 32×32", "–", svhn, characters=True),
}

PUBLISHED_FORMS = {
    "flowers102-squash": ("flowers102", "--resize squash"),
    "tinyimagenet-train": ("tinyimagenet", "--part train"),
    "femnist-128": ("femnist", "--size 128"),
}
"""Datasets as the papers' code prepares them, by the names that configurations use: of what, and how."""


def prepare_command(name: str) -> str:
    """Returns the arguments of `hpcfl data prepare` that make the dataset of this name, if known."""
    if name in PUBLISHED_FORMS:
        original, options = PUBLISHED_FORMS[name]
        return f"{original} {options} --as {name}"
    return name if name in KNOWN_DATASETS else ""
