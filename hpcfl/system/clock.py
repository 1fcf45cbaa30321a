"""The virtual clock: what one round leaves for the next, and what is logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcfl.system.devices import Seconds
from hpcfl.system.events import Events, Round, Status, simulate
from hpcfl.system.system import System


@dataclass(frozen=True)
class Late:
    """An upload that is under way when its round ends."""

    client: int
    round: int
    seconds: float
    """Until it arrives, from the start of the next round."""


@dataclass(frozen=True)
class ClosedRound:
    """A round that has ended."""

    counted: Mapping[int, int]
    """By client, in this order: the round whose upload counts."""
    missed: frozenset[int]
    """Clients whose upload of this round does not count in it."""
    values: Mapping[str, Any]
    """Of the log, by path."""


class Clock:
    """Knows which clients still work on an earlier round, and which uploads are under way."""

    def __init__(self, system: System, wanted: int):
        """`wanted` is the number of uploads that a round needs, if more clients are selected."""
        self.system, self.config = system, system.config
        self.wanted = wanted if self.config.extra else None
        self.busy_M = np.zeros(len(system.clients))
        """Seconds from the start of the next round."""
        self.late: list[Late] = []

    def close(self, t: int, round_: Round, gone_M: np.ndarray) -> ClosedRound:
        """Returns what counts in round t; of two uploads of a client, the newer one.

        `gone_M` are the clients that have diverged for good: none of their uploads counts.
        """
        seconds = round_.seconds(self.system.devices)
        events = simulate(round_, self.busy_M, seconds, self.config.deadline, self.wanted)
        values = self._values(t, round_, seconds, events)
        arrived = [each for each in self.late if each.seconds <= events.length]
        counted = {each.client: each.round for each in arrived if not gone_M[each.client]}
        in_time_M = events.status_M == Status.IN_TIME
        values["/virtual/earlier"] = np.isin(self.system.clients, list(counted)) & ~in_time_M
        counted |= dict.fromkeys(np.flatnonzero(in_time_M).tolist(), t)
        missed = np.flatnonzero(np.isin(events.status_M, (Status.LATE, Status.SURPLUS))).tolist()
        left_M = np.fmax(events.end_M, self.busy_M) - events.length
        self.late = [
            Late(each.client, each.round, each.seconds - events.length)
            for each in self.late
            if each.seconds > events.length
        ]
        if self.config.late == "keep":
            self.late += [Late(client, t, float(left_M[client])) for client in missed]
        self.busy_M = np.maximum(left_M, 0.0)
        return ClosedRound(dict(sorted(counted.items())), frozenset(missed), values)

    def _values(self, t: int, round_: Round, seconds: Seconds, events: Events) -> dict[str, Any]:
        devices, works_M = self.system.devices, round_.works_M
        status_M = events.status_M.copy()
        status_M[~self.system.available_M(t) & ~round_.selected_M] = Status.UNAVAILABLE
        joules_M = devices.joules(seconds.compute_M, seconds.down_M + seconds.up_M)
        parts = {
            "wait": self.busy_M,
            "latency": seconds.latency_M,
            "down": seconds.down_M,
            "compute": seconds.compute_M,
            "up": seconds.up_M,
        }
        known_M = ~np.isnan(joules_M)
        return {
            "/virtual/seconds": events.length,
            "/virtual/joules": joules_M[known_M].sum() if known_M.any() else np.nan,
            "/virtual/status": status_M,
            "/virtual/client_seconds": events.end_M,
            "/virtual/client_joules": joules_M,
            "/virtual/bytes_down": round_.bytes_down_M,
            "/virtual/bytes_up": np.where(round_.uploads_M, round_.bytes_up_M, 0),
            **{f"/virtual/seconds_{name}": np.where(works_M, each, np.nan) for name, each in parts.items()},
        }

    def state(self) -> dict[str, np.ndarray]:
        """Returns the arrays to checkpoint."""
        late = [(each.client, each.round, each.seconds) for each in self.late]
        return {"busy": self.busy_M, "late": np.array(late, dtype=np.float64).reshape(-1, 3)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a checkpointed state."""
        self.busy_M = state["busy"]
        self.late = [Late(int(client), int(t), float(seconds)) for client, t, seconds in state["late"]]
