"""A run in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from hpcfl.log.reader import Run

INFERENCES = ("head", "global", "local")
NEEDS = dict.fromkeys(
    (
        *("/round/accuracy", "/round/accuracy_mean", "/round/loss", "/round/bytes_up", "/round/bytes_down"),
        *("/round/seconds", "/round/efficiency", "/client/best", "/client/diverged", "/clients/test_samples"),
        *(f"/client/accuracy_{name}" for name in INFERENCES),
    ),
    slice(None),
)
"""What has to be read of a log."""
UNKNOWN = float("nan")


@dataclass(frozen=True)
class Summary:
    """Accuracies after the last evaluated round, and what a round cost on average; NaN: unknown yet."""

    accuracy: float = UNKNOWN
    """By the method's own inference, over all test samples."""
    accuracy_clients: float = UNKNOWN
    """The mean of the clients' accuracies."""
    best: float = UNKNOWN
    """The best round's."""
    clients_best: float = UNKNOWN
    """Every client at its own best round."""
    head: float = UNKNOWN
    global_: float = UNKNOWN
    local: float = UNKNOWN
    loss: float = UNKNOWN
    bytes_up: float = UNKNOWN
    """Of a round, as the papers count; likewise down."""
    bytes_down: float = UNKNOWN
    seconds: float = UNKNOWN
    """Of a round."""
    efficiency: float = UNKNOWN
    total_seconds: float = 0.0
    """Of all rounds so far."""
    diverged: int = 0
    """Clients."""


COLUMNS = tuple(field.name.rstrip("_") for field in fields(Summary))
"""The names of its numbers."""


def summary(run: Run) -> Summary:
    """Returns the summary of a run."""
    if not run.rounds_done:
        return Summary()
    accuracy, tests_M = run["/round/accuracy"], run["/clients/test_samples"]
    found: dict[str, float] = {
        name: float(run[f"/round/{name}"].mean())
        for name in ("bytes_up", "bytes_down", "seconds", "efficiency")
    }
    found |= {"loss": float(run["/round/loss"][-1]), "total_seconds": float(run["/round/seconds"].sum())}
    evaluated = np.flatnonzero(~np.isnan(accuracy))
    if len(evaluated):
        t = int(evaluated[-1])
        found |= {
            "accuracy": float(accuracy[t]),
            "accuracy_clients": float(run["/round/accuracy_mean"][t]),
            "best": float(np.nanmax(accuracy)),
            "clients_best": float(np.average(run["/client/best"][-1], weights=tests_M)),
        }
        found |= {
            "global_" if name == "global" else name: over_all(run[f"/client/accuracy_{name}"][t], tests_M)
            for name in INFERENCES
        }
    return Summary(**found, diverged=int(run["/client/diverged"][-1].sum()))


def over_all(accuracy_M: np.ndarray, tests_M: np.ndarray) -> float:
    """Returns right answers ÷ samples over all clients; NaN where no client has such prototypes."""
    known = ~np.isnan(accuracy_M)
    return float((accuracy_M * tests_M)[known].sum() / tests_M.sum()) if known.any() else UNKNOWN
