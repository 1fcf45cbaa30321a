"""The section [data]: which dataset, and how its samples are normalised."""

from __future__ import annotations

import math
import os
from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Section

SPIRAL_CLASSES = 6
SAMPLES_PER_CLIENT, MIN_CLIENTS = 300, 20
"""Size of built-in data where it is not given: mean samples per client, for so many clients or more."""
MAX_PER_CLASS = 1_000_000


class DataConfig(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "spiral"
    """Dataset: spiral, synthetic (both built in), or a name that `hpcfl data prepare` made."""
    root: str = Field(default_factory=lambda: os.environ.get("HPCFL_DATA", "data"))
    """Directory of prepared datasets; default: $HPCFL_DATA, else data."""
    samples_per_class: Annotated[int, Field(ge=1, le=MAX_PER_CLASS)] = 1000
    """Samples per class of built-in data; unset: 300 for each client on average, for 20 clients or more."""
    shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=3, max_length=3)] = Field(
        default_factory=lambda: [32, 32, 3]
    )
    """Shape of synthetic images: height, width, channels."""
    classes: Annotated[int, Field(ge=2, le=100_000)] = 10
    """Number of classes of synthetic images."""
    style: Literal["fednh", "supplement"] = "fednh"
    """Formula of the spiral: fednh (FedNH's generator), or supplement (as in ProtoNorm's supplement A)."""
    normalise: Literal["channel", "half", "none"] = "channel"
    """channel: by each channel's mean and deviation; half: (x/255 − 0.5)/0.5, papers' code; or none."""


def sized(data: DataConfig, clients: int) -> DataConfig:
    """Returns the section with a size of built-in data that grows with the clients, where none is given."""
    number = default_size(data, clients)
    if number is None or "samples_per_class" in data.model_fields_set:
        return data
    return data.model_copy(update={"samples_per_class": number})


def default_size(data: DataConfig, clients: int) -> int | None:
    """Returns the samples per class of built-in data where none are given; None: not built in."""
    classes = {"spiral": SPIRAL_CLASSES, "synthetic": data.classes}.get(data.name)
    if classes is None:
        return None
    return min(math.ceil(SAMPLES_PER_CLIENT * max(MIN_CLIENTS, clients) / classes), MAX_PER_CLASS)
