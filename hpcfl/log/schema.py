"""The metrics of a log: those of every run, and those that the method of a run declares.

A metric is declared once, here or by a method. The record that ranks send, its reduction, the log, its tables
and docs/log.md follow from the declaration.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hpcfl.errors import BadInput
from hpcfl.log.optional_metrics import (
    FEATURE_METRICS,
    VALIDATION_METRICS,
    train_accuracies,
    validation_accuracies,
)
from hpcfl.log.virtual_metrics import VIRTUAL_METRICS
from hpcfl.methods.baseline_metrics import BASELINE_METRICS
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS
from hpcfl.metrics.metric import STRING, Metric, declare, evaluated, trained

if TYPE_CHECKING:
    from hpcfl.federation.run_plan import RunPlan

VERSION, OLDEST = 3, 2
"""The schema that is written, and the oldest that can be read."""

BASE_METRICS = (
    declare("/round/accuracy", "round", "f8", "correct answers ÷ test samples, over all clients"),
    declare("/round/accuracy_mean", "round", "f8", "mean of the clients' accuracies"),
    declare(
        "/round/loss",
        "round",
        "f8",
        "training loss, mean over the participants' samples",
        trained("loss", "sample mean"),
    ),
    declare(
        "/round/train_accuracy",
        "round",
        "f8",
        "correct answers by head ÷ samples in the participants' training batches, before each step",
        trained("train_accuracy", "sample mean"),
    ),
    declare("/round/participants", "round client", "?", "selected clients"),
    declare("/round/uploads", "round", "i8", "number of clients whose uploads were aggregated"),
    declare(
        "/round/loss_ce",
        "round",
        "f8",
        "cross-entropy part of the loss; all parts are unweighted",
        trained("ce", "sample mean"),
    ),
    declare(
        "/round/silhouette",
        "round",
        "f8",
        "mean over clients of /client/silhouette",
        evaluated("silhouette", "mean"),
    ),
    declare(
        "/round/silhouette_pooled",
        "round",
        "f8",
        "that of ≤ 2,000 test features of all clients; NaN: round not saved",
    ),
    declare(
        "/round/personalisation", "round", "f8", "distance of head norms and class counts; 0: proportional"
    ),
    declare("/round/bytes_up", "round", "i8", "bytes of uploads, as papers count; prototypes: Σ K_i·d·4"),
    declare("/round/bytes_down", "round", "i8", "bytes of downloads, as papers count; prototypes: Σ K·d·4"),
    declare("/round/bytes_side", "round", "i8", "bytes beside them: class bitmaps, sample counts, shapes"),
    declare(
        "/round/bytes_mpi",
        "round",
        "i8",
        "all bytes between processes, with control and evaluation",
        kind="measured",
    ),
    declare(
        "/round/seconds", "round", "f8", "time from row to row on rank 0; its parts follow", kind="measured"
    ),
    declare("/round/seconds_train", "round", "f8", "time until the last upload was ready", kind="measured"),
    declare(
        "/round/seconds_comm", "round", "f8", "time for encoding, transfer and decoding", kind="measured"
    ),
    declare("/round/seconds_refine", "round", "f8", "time for aggregation and refinement", kind="measured"),
    declare(
        "/round/seconds_evaluate", "round", "f8", "time until the last metrics were ready", kind="measured"
    ),
    declare("/round/seconds_log", "round", "f8", "time for logging the previous row", kind="measured"),
    declare(
        "/round/cpu_seconds", "round", "f8", "CPU seconds of all ranks, waiting included", kind="measured"
    ),
    declare(
        "/round/efficiency",
        "round",
        "f8",
        "CPU seconds on clients ÷ (min(workers, cores) × seconds)",
        kind="measured",
    ),
    declare("/round/best", "round", "i8", "round (from 0) of the best accuracy so far; -1: none yet"),
    declare(
        "/client/accuracy", "round client", "f8", "accuracy by the method's inference; NaN: not evaluated"
    ),
    declare(
        "/client/accuracy_head",
        "round client",
        "f8",
        "accuracy by the network's head",
        evaluated("accuracy_head"),
    ),
    declare("/client/best", "round client", "f8", "the client's best accuracy so far; NaN: none yet"),
    declare("/client/loss", "round client", "f8", "mean training loss; NaN: did not train", trained("loss")),
    declare(
        "/client/train_accuracy",
        "round client",
        "f8",
        "the same of a client; NaN: did not train",
        trained("train_accuracy"),
    ),
    declare(
        "/client/diverged", "round client", "?", "loss or upload of its last training was NaN or infinite"
    ),
    declare(
        "/client/silhouette",
        "round client",
        "f8",
        "silhouette of test features, by cosine; NaN: unknown",
        evaluated("silhouette"),
    ),
    declare(
        "/client/head_norms",
        "saved client class",
        "f8",
        "norm of head weights per class; NaN: untrained",
        trained("head_norms", "latest"),
    ),
    declare(
        "/client/seconds",
        "round client",
        "f8",
        "time for training and upload; NaN: did not take part",
        trained("seconds"),
        kind="measured",
    ),
    declare(
        "/client/started",
        "round client",
        "f8",
        "time from the round's broadcast to the start of its training; NaN: did not take part",
        trained("started"),
        kind="measured",
    ),
    declare(
        "/client/rank", "round client", "i4", "rank that trained it; -1: did not take part", kind="measured"
    ),
    declare("/clients/architecture", "client", STRING, "name of the network"),
    declare("/clients/parameters", "client", "i8", "parameters of the network with its head"),
    declare("/clients/flops", "client", "i8", "FLOPs of a forward pass over one sample"),
    declare("/clients/train_samples", "client", "i8", "number of training samples"),
    declare("/clients/test_samples", "client", "i8", "number of test samples"),
    declare("/clients/class_counts", "client class", "i8", "training samples per class"),
    declare("/prototypes/saved_round", "saved", "i8", "rounds (from 0) of all rows of saved rounds"),
)

_ALL = (*BASE_METRICS, *PROTOTYPE_METRICS, *BASELINE_METRICS)
OPTIONAL_METRICS = {
    "With validation samples": (*VALIDATION_METRICS, *validation_accuracies(_ALL)),
    "With `log.train_accuracy`": train_accuracies(_ALL),
    "With `log.features_at`": FEATURE_METRICS,
    "With `[system]`": VIRTUAL_METRICS,
}
"""Metrics of runs that ask for them."""
METRICS = (*_ALL, *(metric for metrics in OPTIONAL_METRICS.values() for metric in metrics))
"""All metrics that are known: a log of any method holds BASE_METRICS, and those that its method declares."""

ONLY_SAVED = frozenset({"/round/silhouette_pooled"})
"""Datasets by round that are NaN in rounds that are not saved."""

COMPONENT_NAMES = {
    "statistic": ("least", "mean", "largest"),
    "pair": ("margin", "distance"),
    "party": ("global", "clients"),
}
"""Names of the components along dimensions that are not an index."""

ROUND_PARTS = ("train", "comm", "refine", "evaluate", "log")
"""The parts of a round's seconds: /round/seconds_train and so on."""

BY_PATH = {metric.path: metric for metric in METRICS}


def run_metrics(plan: RunPlan) -> tuple[Metric, ...]:
    """Returns the metrics of a run: those of every run, of its method, and those that it asks for."""
    metrics = (*BASE_METRICS, *plan.spec.metrics)
    if plan.has_validation:
        metrics += (*VALIDATION_METRICS, *validation_accuracies(metrics))
    if plan.config.log.train_accuracy:
        metrics += train_accuracies((*BASE_METRICS, *plan.spec.metrics))
    if plan.config.log.features_at:
        metrics += FEATURE_METRICS
    if plan.system:
        metrics += VIRTUAL_METRICS
    for path, times in Counter(metric.path for metric in metrics).items():
        if times > 1:
            raise BadInput(f"{plan.spec.algorithm}: the metric {path} is declared twice")
    return metrics
