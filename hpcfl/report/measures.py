"""What a published number is of our runs."""

from __future__ import annotations

import math

import numpy as np

from hpcfl.log.summary import overall_accuracy
from hpcfl.report.records import RunRecord
from hpcfl.report.reference_types import PublishedNumber
from hpcfl.report.units import BY_ROUND


def measured(record: RunRecord, number: PublishedNumber) -> float:
    """Returns what a number measures, of a run; NaN: the run does not have it.

    FLOPs are counted as in FedTGP's Table 12, four times a forward pass.
    """
    summary, measure = record.summary, number.measure
    if measure == "bytes":
        both = [number.model_copy(update={"measure": name}) for name in ("bytes_up", "bytes_down")]
        return sum(measured(record, each) for each in both)
    if number.round is not None or measure in ("silhouette", "personalisation"):
        return _after_round(record, BY_ROUND[measure], number.round)
    if measure == "bytes_client":
        return summary.bytes_up / record.run.config.federation.per_round
    if measure == "flops":
        return 4.0 * float(record.run["/clients/flops"].sum())
    return float(getattr(summary, "global_" if measure == "global" else measure))


def _after_round(record: RunRecord, path: str, number: int | None) -> float:
    """Returns a metric after a round, counted from 1; None: after the last round that has it."""
    run = record.run if path.startswith("/round/") else record.read(path)
    if path not in run.datasets or (number is not None and number > len(run[path])):
        return math.nan
    if number is None:
        known = run[path][~np.isnan(run[path])]
        return float(known[-1]) if len(known) else math.nan
    if path.startswith("/round/"):
        return float(run[path][number - 1])
    return overall_accuracy(run[path][number - 1], record.run.evaluated_tests)
