"""The events of one round: when uploads arrive, when the round ends, and which uploads are in time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from hpcfl.system.devices import Devices, Seconds


class Status(IntEnum):
    """What became of a client in a round."""

    NOT_SELECTED = 0
    IN_TIME = 1
    LATE = 2
    """Its upload arrived after the deadline."""
    SURPLUS = 3
    """Its upload arrived after as many others as the round needed."""
    FAILED = 4
    DIVERGED = 5
    UNAVAILABLE = 6
    """It could not be selected."""


@dataclass(frozen=True)
class Round:
    """What is known of a round when its uploads are made, by client."""

    selected_M: np.ndarray
    idle_M: np.ndarray
    """Does nothing, because it diverged in an earlier round."""
    diverged_M: np.ndarray
    """Sends nothing, because its training was not finite in this round."""
    failure_M: np.ndarray
    """The share of its training after which it fails; NaN: it does not."""
    bytes_down_M: np.ndarray
    flops_M: np.ndarray
    bytes_up_M: np.ndarray

    @property
    def works_M(self) -> np.ndarray:
        works_M: np.ndarray = self.selected_M & ~self.idle_M
        return works_M

    @property
    def fails_M(self) -> np.ndarray:
        fails_M: np.ndarray = self.works_M & ~np.isnan(self.failure_M)
        return fails_M

    @property
    def uploads_M(self) -> np.ndarray:
        uploads_M: np.ndarray = self.works_M & ~self.fails_M & ~self.diverged_M
        return uploads_M

    def seconds(self, devices: Devices) -> Seconds:
        """Returns how long each client really spends in each part; who fails stops within its training."""
        flops_M = np.where(self.works_M, self.flops_M, 0.0) * np.where(self.fails_M, self.failure_M, 1.0)
        return devices.seconds(self.bytes_down_M, flops_M, np.where(self.uploads_M, self.bytes_up_M, 0))


@dataclass(frozen=True)
class Events:
    """The events of a round, in seconds from its start."""

    length: float
    status_M: np.ndarray
    end_M: np.ndarray
    """When the client has finished: its upload is in, or it has failed; NaN: it did nothing."""


def simulate(
    round_: Round, busy_M: np.ndarray, seconds: Seconds, deadline: float | None, wanted: int | None
) -> Events:
    """Returns the events of a round that ends at the deadline, or with the first `wanted` uploads.

    A client begins when its work on earlier rounds is done (`busy_M`). The round ends earlier if nobody is
    left to wait for; the server sees at once that a client fails. Of uploads that arrive together, that of
    the client with the smaller id is first.
    """
    works_M, uploads_M = round_.works_M, round_.uploads_M
    end_M = np.where(works_M, busy_M + seconds.total_M, np.nan)
    length = float(end_M[works_M].max(initial=0.0))
    if deadline is not None:
        length = min(length, deadline)
    order = np.flatnonzero(uploads_M)[np.argsort(end_M[uploads_M], kind="stable")]
    in_time, missed = order[end_M[order] <= length], Status.LATE
    if wanted is not None and len(in_time) >= wanted:
        in_time, missed = in_time[:wanted], Status.SURPLUS
        length = float(end_M[in_time].max(initial=0.0))
    status_M = np.where(round_.selected_M, Status.DIVERGED, Status.NOT_SELECTED)
    status_M[uploads_M] = missed
    status_M[in_time] = Status.IN_TIME
    status_M[round_.fails_M] = Status.FAILED
    return Events(length, status_M, end_M)
