"""Compares the results of two runs bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcfl.log.reader import Run
from hpcfl.metrics.metric import ROUNDS_OF, Metric
from hpcfl.utils.formatting import plural

CLIENT_DIMS = ("client", "uploader")


@dataclass(frozen=True)
class Difference:
    """The first value in which two runs differ."""

    path: str
    """Of its dataset."""
    round: int | None
    """From 1; None: the dataset does not grow by round."""
    client: int | None
    """None: the dataset has no client dimension."""
    values: tuple[str, str]
    """What the two runs have there."""
    datasets: int = 1
    """How many datasets differ; 0: all are equal as far as both runs go."""
    is_shape: bool = False
    """The datasets cannot be compared, because their shapes differ."""

    def __str__(self) -> str:
        place = [f"round {self.round}"] if self.round is not None else []
        place += [f"client {self.client}"] if self.client is not None else []
        return f"{', '.join([*place, self.path])}: {self.values[0]} and {self.values[1]}"


def common_results(one: Run, other: Run) -> list[Metric]:
    """Returns the results that both files have, in the order of the first."""
    missing = {*one.lacking, *other.lacking}
    metrics = [
        metric for path, metric in one.metrics.items() if path in other.metrics and path not in missing
    ]
    return [metric for metric in metrics if metric.kind == "result"]


def compare_runs(one: Run, other: Run) -> Difference | None:
    """Returns the first difference between the results of two runs; None: they are equal bit for bit.

    First means: the earliest round, in it the datasets by client before the others, of these the lowest
    client. Runs of different lengths are compared over the rounds that both have.
    """
    rounds = _comparable_rounds(one, other)
    found = [each for metric in common_results(one, other) if (each := _first(metric, one, other, rounds))]
    if found:
        first = min(
            found, key=lambda each: (each.is_shape, each.round or 0, each.client is None, each.client)
        )
        return replace(first, datasets=len(found))
    if one.rounds_done != other.rounds_done:
        lengths = plural(one.rounds_done, "round"), plural(other.rounds_done, "round")
        return Difference(
            "rounds_done", min(one.rounds_done, other.rounds_done) + 1, None, lengths, datasets=0
        )
    return None


def _comparable_rounds(one: Run, other: Run) -> int:
    """Returns how many rounds are compared: of a shorter run, not a last one that is logged out of turn.

    The last round of a run is always evaluated and saved.
    """
    shorter, longer = sorted((one, other), key=lambda run: run.rounds_done)
    rounds, log = shorter.rounds_done, shorter.config.log
    in_turn = rounds % log.evaluate_every == 0 and rounds % log.prototypes_every == 0
    return rounds if in_turn or rounds == longer.rounds_done else rounds - 1


def _first(metric: Metric, one: Run, other: Run, rounds: int) -> Difference | None:
    """Returns the first difference within a dataset, by round, then by client."""
    a, b = (_rows(metric, run, rounds) for run in (one, other))
    if a.shape != b.shape:
        return Difference(metric.path, None, None, (f"shape {a.shape}", f"shape {b.shape}"), is_shape=True)
    places = np.argwhere(_bits(a) != _bits(b))
    if not len(places):
        return None
    place = tuple(places[0].tolist())
    by_round = metric.dims[0] in ("round", *ROUNDS_OF)
    by_client = len(metric.dims) > by_round and metric.dims[by_round] in CLIENT_DIMS
    return Difference(
        metric.path,
        _rounds(metric, one)[place[0]] + 1 if by_round else None,
        place[by_round] if by_client else None,
        _texts(a[place], b[place]),
    )


def _rounds(metric: Metric, run: Run) -> list[int]:
    """Returns the rounds, from 0, of the rows of a dataset."""
    named = ROUNDS_OF.get(metric.dims[0])
    return run[named].tolist() if named else list(range(run.rounds_done))


def _rows(metric: Metric, run: Run, rounds: int) -> np.ndarray:
    """Returns the rows of the first rounds; the whole of a dataset that does not grow by round."""
    values = run[metric.path]
    if metric.dims[0] not in ("round", *ROUNDS_OF):
        return values
    return values[: sum(t < rounds for t in _rounds(metric, run))]


def _bits(values: np.ndarray) -> np.ndarray:
    """Returns an array of whole numbers that are equal where the bits are; strings stay strings."""
    if values.dtype == object:
        return values
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _texts(a: object, b: object) -> tuple[str, str]:
    """Returns two values as text; two NaN that differ are shown by their bits."""
    texts = [str(value) for value in (a, b)]
    if texts[0] == texts[1]:
        texts = [f"{value} (0x{np.asarray(value).tobytes()[::-1].hex()})" for value in (a, b)]
    return texts[0], texts[1]
