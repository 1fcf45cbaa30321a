"""The verdict: did federation help? Each method against `local`, by the same inference, client and seed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from hpcfl.config.identity import identity_but_for_method
from hpcfl.log.summary import overall_accuracy
from hpcfl.report.records import RunRecord
from hpcfl.report.series import Series

LOCAL = "local"
COUNTERPART = {"head": "head", "trained": "head", "local": "local"}
"""By inference of a method: that of `local` which does the same. `local` has no global prototypes."""
CONFIDENCE = 0.95
WORDS = {
    "head": "head",
    "trained": "trained head",
    "local": "local prototypes",
    "global": "global prototypes",
}
EUCLIDEAN = ("mse", "euclid", "sq")


@dataclass(frozen=True)
class Delta:
    """A method's accuracy minus that of `local`, by one inference; paired by client and seed."""

    series: Series
    inference: str
    accuracy: float
    """Over all test samples, mean over the seeds that both have; `local` likewise."""
    local: float
    by_seed: tuple[float, ...]
    """Difference for each seed."""
    better: int
    """Pairs of client and seed in which the client is better off than alone; `worse` likewise."""
    worse: int
    pairs: int
    runs: tuple[tuple[RunRecord, RunRecord], ...]
    """The runs of the method, each with its run of `local`."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_seed))

    @property
    def is_own(self) -> bool:
        """Whether it is the inference that counts for the method."""
        return self.inference == self.series.records[0].infer

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the mean by Student's t over seeds; None: a single seed."""
        return interval(self.by_seed)

    @property
    def outcome(self) -> str:
        """`above`, `below` or `level`; with several seeds level means that the interval holds 0."""
        low, high = self.interval or (self.mean, self.mean)
        return "above" if low > 0 else "below" if high < 0 else "level"


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95% interval of a mean by Student's t; None: a single value."""
    n = len(values)
    if n < 2:
        return None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(n)
    return mean - half, mean + half


@dataclass(frozen=True)
class Verdict:
    """The differences to `local`, and what could not be compared."""

    deltas: tuple[Delta, ...]
    notes: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """Returns a sentence for each method and inference whose mean is below that of `local`."""
        return [
            f"{delta.series.name} is below local by {WORDS[delta.inference]}: {points(delta.mean)} points"
            + (", but 0 is within the interval" if delta.outcome == "level" else "")
            for delta in self.deltas
            if delta.mean < 0
        ]


def make_verdict(all_series: Sequence[Series]) -> Verdict:
    """Returns the verdict on all series of a report but `local` itself."""
    alone = {
        pair_key(record): record
        for series in all_series
        if series.method == LOCAL
        for record in series.finished
    }
    federated = [series for series in all_series if series.method != LOCAL]
    if not federated:
        return Verdict((), ("there is no method beside local",))
    if not alone:
        return Verdict((), ("there is no finished run of local: add one with --set method.name=local",))
    deltas: list[Delta] = []
    notes: list[str] = []
    for series in federated:
        pairs = [(r, alone[key]) for r in series.finished if (key := pair_key(r)) in alone]
        if not pairs:
            reason = (
                "no run of local has the same setting, split and seed" if series.finished else "not finished"
            )
            notes.append(f"{series.name} is not compared: {reason}")
            continue
        if left := len(series.records) - len(pairs):
            notes.append(
                f"{series.name}: {left} of {len(series.records)} runs not finished or without a run of local"
            )
        found = [delta for inference in COUNTERPART if (delta := _delta(series, inference, pairs))]
        deltas += sorted(found, key=lambda delta: not delta.is_own)
        notes += _differing_inference(series, found)
    return Verdict(tuple(deltas), tuple(notes))


def pair_key(record: RunRecord) -> tuple[str, ...]:
    """Returns what a run and its run of `local` share: the split, and all settings but the method."""
    attributes = record.run.attributes
    checksums = (str(attributes.get(f"checksum_{name}", "")) for name in ("data", "split"))
    return identity_but_for_method(record.run.config), *checksums


def _delta(series: Series, inference: str, pairs: Sequence[tuple[RunRecord, RunRecord]]) -> Delta | None:
    """Returns the difference by one inference; None: not both runs have it, or they infer differently."""
    if inference == "local" and not all(_same_prototypes(one, alone) for one, alone in pairs):
        return None
    shares, alone_shares, better, worse, count = [], [], 0, 0, 0
    for one, alone in pairs:
        accuracy_M = one.accuracy.get(inference)
        alone_M = alone.accuracy.get(COUNTERPART[inference])
        if accuracy_M is None or alone_M is None or np.isnan(accuracy_M).all() or np.isnan(alone_M).all():
            return None
        tests_M = one.run.evaluated_tests
        shares.append(overall_accuracy(accuracy_M, tests_M))
        alone_shares.append(overall_accuracy(alone_M, tests_M))
        difference_M = (np.nan_to_num(accuracy_M) - np.nan_to_num(alone_M))[tests_M > 0]
        better, worse = better + int((difference_M > 0).sum()), worse + int((difference_M < 0).sum())
        count += len(difference_M)
    by_seed = tuple(a - b for a, b in zip(shares, alone_shares, strict=True))
    means = float(np.mean(shares)), float(np.mean(alone_shares))
    return Delta(series, inference, *means, by_seed, better, worse, count, tuple(pairs))


def _same_prototypes(one: RunRecord, alone: RunRecord) -> bool:
    """Returns whether local prototypes are compared as `local` does: Euclidean, without masks."""
    slots = str(one.run.attributes.get("method", ""))
    distance = re.search(r"\bdistance (\S+?)(?:,|$)", slots)
    methods = one.run.config.method, alone.run.config.method
    return (
        (distance is None or distance[1] in EUCLIDEAN)
        and "masked always" not in slots
        and len({(method.own_classes, method.prototypes) for method in methods}) == 1
    )


def _differing_inference(series: Series, found: Sequence[Delta]) -> list[str]:
    """Returns a note if the inference that counts for a method is not among the differences."""
    record = series.records[0]
    if any(delta.is_own for delta in found):
        return []
    reason = "local has none" if record.infer == "global" else "local infers otherwise"
    return [f"{series.name} counts by {WORDS[record.infer]}, which is not compared: {reason}"]


def points(share: float) -> str:
    """Returns a difference of accuracies in percentage points, with its sign."""
    return f"{100 * share:+.2f}".replace("-", "−")
