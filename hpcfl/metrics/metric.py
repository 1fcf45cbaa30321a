"""The declaration of a metric: one dataset of the log, with all that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["result", "measured"]
Phase = Literal["train", "evaluate"]
Reduction = Literal["each", "mean", "sample mean", "sum", "max", "latest"]
STRING = "string"
ROUNDS_OF = {"saved": "/prototypes/saved_round", "chosen": "/features/round"}
"""First dimensions of datasets that have rows of some rounds only, by the dataset that names the rounds."""


@dataclass(frozen=True)
class ClientValue:
    """A value that a rank measures for a client, and what rank 0 logs of the values of all clients.

    each: by client; mean: over clients; sample mean: over their training samples; sum; max; latest: by
    client, from the last round in which it was measured.
    """

    name: str
    """How the worker calls it: `metrics[name] = value`."""
    phase: Phase
    """Whether it is measured for the clients that train in a round, or for those that are evaluated."""
    reduction: Reduction = "each"


@dataclass(frozen=True)
class Metric:
    """One dataset. By its first dimension it grows every `round`, every `saved` or `chosen` round, or not.

    A `result` is equal bit for bit on any number of ranks; a `measured` value (times, MPI bytes) is not.
    """

    path: str
    dims: tuple[str, ...]
    dtype: str
    kind: Kind
    about: str
    value: ClientValue | None = None
    """None: rank 0 computes it."""

    def __post_init__(self) -> None:
        """Raises ValueError for a declaration that cannot be logged."""
        if self.value is None:
            return
        by_client = len(self.dims) > 1 and self.dims[1] == "client"
        if by_client != (self.value.reduction in ("each", "latest")):
            raise ValueError(f"{self.path}: {self.value.reduction!r} does not fit the dimensions {self.dims}")
        if not self.is_float and self.value.reduction not in ("each", "sum", "max"):
            raise ValueError(f"{self.path}: {self.value.reduction!r} needs a float, not {self.dtype}")
        if self.value_dims and self.value.reduction == "sample mean":
            raise ValueError(f"{self.path}: 'sample mean' is for one number per client")

    @property
    def value_dims(self) -> tuple[str, ...]:
        """The dimensions of one client's value."""
        return tuple(dim for dim in self.dims if dim not in ("round", *ROUNDS_OF, "client"))

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("f")


def declare(
    path: str, dims: str, dtype: str, about: str, value: ClientValue | None = None, kind: Kind = "result"
) -> Metric:
    """Returns a metric; `value`, if given, is what ranks measure for their clients."""
    return Metric(path, tuple(dims.split()), dtype, kind, about, value)


def trained(name: str, reduction: Reduction = "each") -> ClientValue:
    """Returns a value that is measured for the clients that train in a round."""
    return ClientValue(name, "train", reduction)


def evaluated(name: str, reduction: Reduction = "each") -> ClientValue:
    """Returns a value that is measured for the clients that are evaluated after a round."""
    return ClientValue(name, "evaluate", reduction)
