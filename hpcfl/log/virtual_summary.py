"""The summary of a run's virtual clock: its time and energy, who was dropped and why, and who took part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcfl.log.reader import Run
from hpcfl.system.events import Status
from hpcfl.utils.formatting import format_duration, plural

DROPPED = {
    Status.LATE: "late",
    Status.SURPLUS: "surplus",
    Status.FAILED: "failed",
    Status.DIVERGED: "diverged",
}
NEEDED = dict.fromkeys(
    ("/virtual/seconds", "/virtual/joules", "/virtual/status", "/virtual/earlier"), slice(None)
)
"""The datasets and rows of a log that a summary needs."""


@dataclass(frozen=True)
class VirtualSummary:
    """Sums over all rounds so far."""

    seconds: float
    per_round: float
    joules: float
    """NaN: no device has watts."""
    selected: int
    """Participations: a client in a round."""
    counted_M: np.ndarray
    """By client: the number of its uploads, or trainings without any, that counted."""
    lost: dict[str, int]
    """Participations that did not count in their round, by reason."""
    earlier: int
    """How many of these counted in a later round."""

    @property
    def fairness(self) -> float:
        """Jain's index of participation: 1 if all clients counted equally often, 1/M if only one ever did."""
        total = float(self.counted_M.sum())
        squares = float((self.counted_M.astype(np.float64) ** 2).sum())
        return total**2 / (len(self.counted_M) * squares) if total else float("nan")


def virtual_summary(run: Run) -> VirtualSummary | None:
    """Returns the summary of a run; None: it has no virtual clock, or no round yet."""
    if "/virtual/status" not in run.datasets or not len(run["/virtual/status"]):
        return None
    status, earlier, seconds = run["/virtual/status"], run["/virtual/earlier"], run["/virtual/seconds"]
    joules = run["/virtual/joules"]
    counted = (status == Status.IN_TIME) | earlier
    return VirtualSummary(
        float(seconds.sum()),
        float(seconds.mean()),
        float(np.nansum(joules)) if not np.isnan(joules).all() else float("nan"),
        int(np.isin(status, (Status.IN_TIME, *DROPPED)).sum()),
        counted.sum(0),
        {name: number for each, name in DROPPED.items() if (number := int((status == each).sum()))},
        int(earlier.sum()),
    )


def format_seconds(seconds: float) -> str:
    """Returns virtual seconds as text: short ones with decimals."""
    return f"{seconds:.3g} s" if seconds < 100 else format_duration(seconds)


def format_joules(joules: float) -> str:
    """Returns an energy with a unit, as `1.5 kJ`."""
    for unit in ("J", "kJ", "MJ"):
        if abs(joules) < 1000:
            return f"{joules:.3g} {unit}"
        joules /= 1000
    return f"{joules:.3g} GJ"


def describe_virtual(found: VirtualSummary) -> list[str]:
    """Returns a summary in lines of words: time and energy, then who counted."""
    time = f"{format_seconds(found.seconds)}, {format_seconds(found.per_round)} a round"
    if not np.isnan(found.joules):
        time += f", {format_joules(found.joules)}"
    lost = ", ".join(f"{number} {name}" for name, number in found.lost.items())
    counted = found.selected - sum(found.lost.values())
    who = f"{counted} of {plural(found.selected, 'participation')} in time"
    who += f" ({lost})" if lost else ""
    who += f"; {found.earlier} counted later" if found.earlier else ""
    if not np.isnan(found.fairness):
        who += f"; fairness {found.fairness:.3f}"
    return [time, who]
