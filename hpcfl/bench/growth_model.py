"""What a run costs as a straight line: a fixed part, and a part that grows with one number of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Size:
    """The numbers of a run that its cost grows with."""

    clients: int
    participants: int
    """Of a round."""
    rounds: int

    @property
    def trained(self) -> float:
        """The expected number of clients that take part in at least one round."""
        return self.clients * (1 - (1 - self.participants / self.clients) ** self.rounds)


@dataclass(frozen=True)
class Cost:
    """What a run costs."""

    seconds: float
    """Of a round; CPU seconds are those of all ranks."""
    cpu_seconds: float
    memory: float
    """Bytes of all processes together, at most; log and checkpoints: bytes on disk at the end."""
    log: float
    checkpoint: float
    start: float
    """Seconds from the start of mpirun to the first round."""


GROWS_WITH = {
    "seconds": "participants",
    "cpu_seconds": "participants",
    "memory": "clients",
    "log": "clients",
    "checkpoint": "trained",
    "start": "clients",
}
"""The number of `Size` that each cost grows with."""


@dataclass(frozen=True)
class Line:
    """A cost as `fixed` + `each` × a number of the run."""

    fixed: float
    each: float

    def at(self, x: float) -> float:
        return self.fixed + self.each * x


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Returns the median of each cost."""
    return Cost(**{name: float(np.median([getattr(cost, name) for cost in costs])) for name in GROWS_WITH})


def fit(costs: Mapping[Size, Cost]) -> dict[str, Line]:
    """Returns the line of each cost by least squares; where all numbers are equal, without a fixed part."""
    lines = {}
    for name, grows_with in GROWS_WITH.items():
        x = np.array([getattr(size, grows_with) for size in costs], dtype=float)
        y = np.array([getattr(cost, name) for cost in costs.values()], dtype=float)
        if np.ptp(x) == 0:
            lines[name] = Line(0.0, float(y.mean() / x[0]))
        else:
            each, fixed = np.polyfit(x, y, 1)
            lines[name] = Line(float(fixed), float(each))
    return lines


def predict(lines: Mapping[str, Line], size: Size) -> Cost:
    """Returns the cost of a run of another size."""
    return Cost(**{name: line.at(getattr(size, GROWS_WITH[name])) for name, line in lines.items()})
