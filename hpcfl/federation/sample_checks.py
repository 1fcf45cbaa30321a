"""Checks that settings and networks suit the samples of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from hpcfl.config.schema import Config
from hpcfl.data.dataset import Dataset
from hpcfl.data.partition import Split
from hpcfl.errors import BadInput
from hpcfl.models.registry import ARCHITECTURES, split_name


def check_samples(config: Config, data: Dataset, architectures: Sequence[str]) -> None:
    """Raises BadInput for what only images have, and for networks that cannot take token numbers."""
    if data.is_images:
        return
    name, size = config.data.name, "×".join(map(str, data.shape))
    if config.train.augment:
        raise BadInput(
            f"train.augment = {config.train.augment}: only images can be augmented, "
            f"{name} has {data.x.dtype} samples of {size}"
        )
    if config.data.normalise == "half" and data.file is not None:
        raise BadInput(
            "data.normalise = 'half': is for the bytes of images; "
            f"for the {data.x.dtype} samples of {name} set channel or none"
        )
    ours = [extractor for extractor, _ in map(split_name, architectures) if extractor in ARCHITECTURES]
    if ours and data.input_type == "int32":
        raise BadInput(
            f"data.name = {name!r}: its samples are {size} token numbers (int32), which {ours[0]} cannot "
            "embed; give a network of your own (docs/models.md), or prepare the numbers as float32"
        )


def check_batches(config: Config, splits: Sequence[Split]) -> None:
    """Raises BadInput if a client would train on nothing, because its only batch is left out."""
    size = config.train.batch_size
    for client, split in enumerate(splits):
        if config.train.drop_last and len(split.train) < size:
            raise BadInput(
                f"train.drop_last = true: client {client} has {len(split.train)} training samples, fewer "
                f"than train.batch_size = {size}; a smaller batch or a larger partition.min_samples may help"
            )
