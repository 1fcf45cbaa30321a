"""Compares the results of two runs bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcfl.log.reader import Run
from hpcfl.log.schema import ENTRIES, Entry

RESULTS = tuple(entry for entry in ENTRIES if entry.kind == "result")
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

    def __str__(self) -> str:
        place = [f"round {self.round}"] if self.round is not None else []
        place += [f"client {self.client}"] if self.client is not None else []
        return f"{', '.join([*place, self.path])}: {self.values[0]} and {self.values[1]}"


def compare_runs(one: Run, other: Run) -> Difference | None:
    """Returns the first difference between the results of two runs; None: they are equal bit for bit.

    First means: the earliest round, in it the datasets by client before the others, of these the lowest
    client. Runs of different lengths are compared over the rounds that both have.
    """
    rounds = min(one.rounds_done, other.rounds_done)
    found = [each for entry in RESULTS if (each := _first(entry, one, other, rounds))]
    if found:
        first = min(found, key=lambda each: (each.round or 0, each.client is None, each.client or 0))
        return Difference(first.path, first.round, first.client, first.values, len(found))
    if one.rounds_done != other.rounds_done:
        lengths = f"{one.rounds_done} rounds", f"{other.rounds_done} rounds"
        return Difference("rounds_done", rounds + 1, None, lengths, datasets=0)
    return None


def _first(entry: Entry, one: Run, other: Run, rounds: int) -> Difference | None:
    """Returns the first difference within a dataset, by round, then by client."""
    common = _rounds(entry, one, rounds) & _rounds(entry, other, rounds)
    a, b = (_rows(entry, run, common) for run in (one, other))
    if a.shape != b.shape:
        return Difference(entry.path, None, None, (f"shape {a.shape}", f"shape {b.shape}"))
    places = np.argwhere(_bits(a) != _bits(b))
    if not len(places):
        return None
    place = tuple(places[0].tolist())
    by_round = entry.dims[0] in ("round", "saved")
    by_client = len(entry.dims) > by_round and entry.dims[by_round] in CLIENT_DIMS
    return Difference(
        entry.path,
        sorted(common)[place[0]] + 1 if by_round else None,
        place[by_round] if by_client else None,
        _texts(a[place], b[place]),
    )


def _rounds(entry: Entry, run: Run, rounds: int) -> set[int]:
    """Returns the rounds, from 0, that a dataset has rows of."""
    saved = run["/prototypes/saved_round"].tolist() if entry.dims[0] == "saved" else range(rounds)
    return {t for t in saved if t < rounds}


def _rows(entry: Entry, run: Run, rounds: set[int]) -> np.ndarray:
    """Returns the rows of these rounds; the whole of a dataset that does not grow by round."""
    values = run[entry.path]
    if entry.dims[0] == "round":
        return values[: len(rounds)]
    if entry.dims[0] == "saved":
        return values[[t in rounds for t in run["/prototypes/saved_round"].tolist()]]
    return values


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
