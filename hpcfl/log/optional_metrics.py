"""Metrics of runs that ask for them: accuracies on validation and training samples, saved features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpcfl.metrics.metric import Metric, Reduction, declare, evaluated

VALIDATION_METRICS = (
    declare("/round/validation_accuracy", "round", "f8", "correct answers ÷ validation samples, all clients"),
    declare(
        "/round/selected",
        "round",
        "i8",
        "round (from 0) of the best validation accuracy so far; -1: none yet",
    ),
    declare(
        "/client/validation_accuracy",
        "round client",
        "f8",
        "accuracy on validation samples by the method's inference; NaN: no samples, or not evaluated",
    ),
    declare("/clients/validation_samples", "client", "i8", "number of validation samples"),
)
"""Of runs with validation samples, beside `validation_accuracies`."""
FEATURE_METRICS = (
    declare("/features/round", "chosen", "i8", "rounds (from 0) of the rows of /features/test"),
    declare(
        "/features/test",
        "chosen test_sample feature",
        "f4",
        "features of the same test samples after each of these rounds; NaN: its client has diverged",
    ),
    declare("/features/client", "test_sample", "i8", "the client whose network and test sample it is"),
    declare("/features/label", "test_sample", "i8", "its class"),
    declare("/features/index", "test_sample", "i8", "its index in the dataset"),
)
"""Of runs with `log.features_at`."""
TRAIN_REDUCTIONS: tuple[tuple[str, str, str, Reduction], ...] = (
    ("round", "round", "all clients'", "sample mean"),
    ("client", "round client", "its", "each"),
)
"""What is logged of the accuracy on training samples: group, dimensions, whose, reduction."""


def validation_accuracies(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Returns the accuracies on validation samples: one for each of a client's accuracies in `metrics`."""
    return tuple(
        replace(
            metric,
            path=f"/client/validation_{name}",
            about=f"/client/{name}, on validation samples",
            value=evaluated(f"validation_{name}"),
        )
        for name, metric in _by_inference(metrics).items()
    )


def train_accuracies(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Returns the accuracies on training samples after a round: over all clients, and by client."""
    names = [name for name in _by_inference(metrics) if name != "accuracy_trained"]
    return tuple(
        declare(
            f"/{group}/train_{name}",
            dims,
            "f8",
            f"/client/{name}, on {whose} training samples",
            evaluated(f"train_{name}", reduction),
        )
        for group, dims, whose, reduction in TRAIN_REDUCTIONS
        for name in names
    )


def _by_inference(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Returns a client's accuracies on test samples, by name: accuracy_head and so on."""
    measured = [(metric.value, metric) for metric in metrics if metric.value]
    return {
        value.name: metric
        for value, metric in measured
        if value.name.startswith("accuracy_") and (value.phase, value.reduction) == ("evaluate", "each")
    }
