"""What a dataset is, and which ones there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hpcfl.config import Data
from hpcfl.data.spiral import spiral
from hpcfl.errors import BadInput, nearest


@dataclass(frozen=True)
class Dataset:
    """All samples of a dataset; clients hold indices into it."""

    x: np.ndarray
    """Samples, [N, …], float32."""
    y: np.ndarray
    """Labels 0 … classes − 1, [N], int64."""
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.x.shape[1:]


@dataclass(frozen=True)
class Source:
    """A dataset that can be asked for by name."""

    about: str
    paper: str
    read: Callable[[Data], tuple[np.ndarray, np.ndarray]]
    """settings → samples, labels."""


SOURCES = {
    "spiral": Source(
        "six spiral arms in the plane, built in",
        "ProtoNorm, Fig. 1 and supplement A; FedNH's generator",
        spiral,
    ),
}


def read(settings: Data) -> Dataset:
    """Returns the dataset that the configuration names."""
    if settings.name not in SOURCES:
        raise BadInput(
            f"data.name = {settings.name!r}: no such dataset; built in: {', '.join(SOURCES)}"
            f"{nearest(settings.name, SOURCES)}"
        )
    x, y = SOURCES[settings.name].read(settings)
    return Dataset(x, y, int(y.max()) + 1)
