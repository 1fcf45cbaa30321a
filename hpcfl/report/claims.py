"""The papers' claims, each decided by paired differences of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hpcfl.report.measures import measured
from hpcfl.report.reference import find_series
from hpcfl.report.reference_types import Claim, PublishedNumber
from hpcfl.report.series import Series, Setting
from hpcfl.report.tables import NONE, Cell, Table
from hpcfl.report.units import SIZES
from hpcfl.report.verdict import interval, pair_key

COLUMNS = ("claim", "paper", "what", "in the paper", "here", "95% interval", "seeds", "verdict")
HOLDS, DOES_NOT, UNDECIDED, NOT_RUN = "holds", "does not hold", "undecided", "not run"


def claims_table(claims: Sequence[Claim], settings: Sequence[Setting], small: bool) -> Table:
    """Returns a row for each claim: the difference in the paper, ours with its interval, and the verdict."""
    all_series = [series for setting in settings for series in setting.series]
    rows = tuple(_row(claim, differences(claim, all_series)) for claim in claims)
    notes = (
        "Here: the mean difference of finished runs with the same split and seed, with its 95% interval by "
        "Student's t over seeds. A claim holds if the interval is above 0, does not hold if it is below 0, "
        "and is undecided otherwise, or with a single seed. Each interval is by itself: of twenty, one may "
        "mislead.",
        *(["These are runs at small scale: their numbers mean nothing."] if small else []),
    )
    numbers = tuple(name in ("in the paper", "here", "seeds") for name in COLUMNS)
    return Table("claims", "The papers' claims", COLUMNS, numbers, rows, notes)


def differences(claim: Claim, all_series: Sequence[Series]) -> list[float]:
    """Returns the differences of runs that differ in the method alone, by seed, in the unit of the claim."""
    higher, lower = (find_series(all_series, match) for match in (claim.higher, claim.lower))
    if len(higher) != 1 or len(lower) != 1:
        return []
    number = PublishedNumber(
        paper=claim.paper, table=claim.place, row="-", column="-", value=0.0, unit=claim.unit,
        measure=claim.measure, match=claim.higher,
    )  # fmt: skip
    partner = {pair_key(record): record for record in lower[0].finished}
    pairs = [(record, partner[key]) for record in higher[0].finished if (key := pair_key(record)) in partner]
    found = [(measured(a, number) - measured(b, number)) / SIZES[claim.unit] for a, b in pairs]
    return [difference for difference in found if not math.isnan(difference)]


def verdict_on(values: Sequence[float]) -> str:
    """Returns whether a difference is above 0."""
    low, high = interval(values) or (-math.inf, math.inf)
    if not values:
        return NOT_RUN
    return HOLDS if low > 0 else DOES_NOT if high < 0 else UNDECIDED


def _row(claim: Claim, values: Sequence[float]) -> tuple[Cell, ...]:
    mean = float(np.mean(values)) if values else math.nan
    limits = interval(values)
    return (
        *(Cell(text) for text in (claim.says, f"{claim.paper}, {claim.place}", _what(claim))),
        *(_signed(value) for value in (math.nan if claim.stated is None else claim.stated, mean)),
        Cell(NONE if limits is None else f"{_signed(limits[0]).text} to {_signed(limits[1]).text}"),
        Cell(str(len(values)), len(values)),
        Cell(verdict_on(values)),
    )


def _what(claim: Claim) -> str:
    return f"{claim.measure}, points" if claim.unit == "%" else f"{claim.measure} in {claim.unit}"


def _signed(value: float) -> Cell:
    return Cell(NONE if math.isnan(value) else f"{value:+.2f}".replace("-", "−"), value)
