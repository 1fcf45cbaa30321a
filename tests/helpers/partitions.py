"""Partitions of samples among clients."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import PartitionConfig
from hpcfl.data.partition import Split


def config_of(name: str, **more: object) -> PartitionConfig:
    """Returns the section `partition` of a configuration."""
    return PartitionConfig.model_validate({"name": name, **more})


def assert_same_splits(one: list[Split], two: list[Split]) -> None:
    """Checks that every client has the same samples in the same order."""
    for a, b in zip(one, two, strict=True):
        for part in ("train", "test", "unlabelled"):
            np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
