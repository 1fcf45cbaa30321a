"""The summary of a run: accuracies, loss, traffic and time."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from hpcfl.log.reader import Run

INFERENCES = ("head", "global", "local", "trained")
SUMMARY_ROWS = dict.fromkeys(
    (
        *("/round/accuracy", "/round/accuracy_mean", "/round/loss", "/round/bytes_up", "/round/bytes_down"),
        *("/round/train_accuracy", "/round/validation_accuracy"),
        *("/round/seconds", "/round/efficiency", "/client/best", "/client/diverged", "/clients/test_samples"),
        *(f"/client/accuracy_{name}" for name in INFERENCES),
    ),
    slice(None),
)
"""The datasets and rows of a log that a summary needs."""
UNKNOWN = float("nan")


@dataclass(frozen=True)
class Summary:
    """Accuracies after the last evaluated round, and mean costs of a round; NaN: not known yet."""

    accuracy: float = UNKNOWN
    """By the method's own inference, over all test samples."""
    accuracy_clients: float = UNKNOWN
    """The mean of the clients' accuracies."""
    best: float = UNKNOWN
    """Accuracy of the best round."""
    clients_best: float = UNKNOWN
    """Accuracy over all test samples with every client at its own best round."""
    validation: float = UNKNOWN
    """The best accuracy on validation samples; the round that has it is the one that validation selects."""
    selected: float = UNKNOWN
    """Accuracy on test samples in that round."""
    head: float = UNKNOWN
    global_: float = UNKNOWN
    local: float = UNKNOWN
    trained: float = UNKNOWN
    """By the head before the download that changes it."""
    train: float = UNKNOWN
    """By the head in the training batches of the last round."""
    loss: float = UNKNOWN
    bytes_up: float = UNKNOWN
    """Mean per round, counted as in the papers; `bytes_down` likewise."""
    bytes_down: float = UNKNOWN
    seconds: float = UNKNOWN
    """Mean per round."""
    efficiency: float = UNKNOWN
    total_seconds: float = 0.0
    """Sum over all rounds so far."""
    diverged: int = 0
    """Number of diverged clients."""


COLUMNS = tuple(field.name.rstrip("_") for field in fields(Summary))
"""Names of the fields, without the trailing underscore of `global_`."""


def summary(run: Run) -> Summary:
    """Returns the summary of a run."""
    if not run.rounds_done:
        return Summary()
    accuracy, tests_M = run["/round/accuracy"], run.evaluated_tests
    values: dict[str, float] = {
        name: float(run[f"/round/{name}"].mean())
        for name in ("bytes_up", "bytes_down", "seconds", "efficiency")
    }
    values |= {
        "loss": float(run["/round/loss"][-1]),
        "train": float(run["/round/train_accuracy"][-1]),
        "total_seconds": float(run["/round/seconds"].sum()),
    }
    if (chosen := selected_round(run)) is not None:
        values |= {
            "validation": float(run["/round/validation_accuracy"][chosen]),
            "selected": float(accuracy[chosen]),
        }
    evaluated = np.flatnonzero(~np.isnan(accuracy))
    if len(evaluated):
        t = int(evaluated[-1])
        values |= {
            "accuracy": float(accuracy[t]),
            "accuracy_clients": float(run["/round/accuracy_mean"][t]),
            "best": float(np.nanmax(accuracy)),
            "clients_best": float(
                np.average(run["/client/best"][-1][tests_M > 0], weights=tests_M[tests_M > 0])
            ),
        }
        values |= {
            "global_" if name == "global" else name: overall_accuracy(
                run[f"/client/accuracy_{name}"][t], tests_M
            )
            for name in INFERENCES
        }
    return Summary(**values, diverged=int(run["/client/diverged"][-1].sum()))


def selected_round(run: Run) -> int | None:
    """Returns the round (from 0) of the best accuracy on validation samples; None: there is none."""
    accuracy = run["/round/validation_accuracy"]
    return None if np.isnan(accuracy).all() else int(np.nanargmax(accuracy))


def overall_accuracy(accuracy_M: np.ndarray, tests_M: np.ndarray) -> float:
    """Returns correct answers ÷ test samples over all clients; NaN: no client has an accuracy."""
    evaluated = ~np.isnan(accuracy_M)
    if not evaluated.any():
        return UNKNOWN
    return float((accuracy_M * tests_M)[evaluated].sum() / tests_M.sum())
