"""What a run needed to reach a target accuracy: rounds, bytes, seconds, and virtual seconds and energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpcfl.errors import BadInput

if TYPE_CHECKING:
    from hpcfl.log.reader import Run


@dataclass(frozen=True)
class ToTarget:
    """Sums over all rounds up to the first whose accuracy is at least the target, that round included."""

    rounds: int
    bytes_up: int
    """Of all clients, counted as in the papers; `bytes_down` likewise."""
    bytes_down: int
    seconds: float
    virtual_seconds: float | None = None
    """Of the devices that are simulated; None: the run has no virtual clock."""
    joules: float | None = None


def to_target(run: Run, accuracy: float, path: str = "/round/accuracy") -> ToTarget | None:
    """Returns what a run needed to reach an accuracy (0 … 1); None: it did not.

    `path` is any dataset with one accuracy per round. Only evaluated rounds count.
    """
    if path not in run.metrics or run.metrics[path].dims != ("round",):
        raise BadInput(f"{path} does not hold one value per round")
    reached = np.flatnonzero(run[path] >= accuracy)  # NaN is not
    if not len(reached):
        return None
    rounds = int(reached[0]) + 1
    up, down, seconds = (
        run[f"/round/{name}"][:rounds].sum() for name in ("bytes_up", "bytes_down", "seconds")
    )
    virtual = {}
    for name, dataset in (("virtual_seconds", "/virtual/seconds"), ("joules", "/virtual/joules")):
        if dataset in run.datasets and not np.isnan(values := run[dataset][:rounds]).any():
            virtual[name] = float(values.sum())
    return ToTarget(rounds, int(up), int(down), float(seconds), **virtual)
