"""The verdict as text: rows of a table, and lines below `hpcfl show` of several runs."""

from __future__ import annotations

from hpcfl.report.verdict import WORDS, Delta, Verdict, points
from hpcfl.report.wide_table import print_wide
from hpcfl.utils.formatting import console, format_percent

QUESTION = "Did federation help? Each method against local by the same inference, client and seed:"
HEADINGS = ("method", "inference", "accuracy", "local", "difference", "clients better", "worse", "verdict")


def verdict_row(delta: Delta) -> tuple[str, ...]:
    """Returns the cells of a difference under HEADINGS."""
    count = f" of {delta.pairs}"
    return (
        delta.series.name,
        WORDS[delta.inference] + (" (its own)" if delta.is_own else ""),
        *(format_percent(delta.accuracy), format_percent(delta.local), difference_text(delta)),
        *(f"{delta.better}{count}", f"{delta.worse}{count}", outcome_text(delta)),
    )


def difference_text(delta: Delta) -> str:
    """Returns a difference in points with its interval, as `+1.20 [+0.31, +2.09]`."""
    if delta.interval is None:
        return points(delta.mean)
    low, high = delta.interval
    return f"{points(delta.mean)} [{points(low)}, {points(high)}]"


def outcome_text(delta: Delta) -> str:
    """Returns whether federation helped, in a few words."""
    words = {"above": "above local", "below": "BELOW local", "level": "unclear"}
    seeds = len(delta.by_seed)
    return words[delta.outcome] + (", one seed" if seeds == 1 else f", {seeds} seeds")


def print_verdict(verdict: Verdict) -> None:
    """Prints the verdict: a table, the warnings, and what could not be compared."""
    screen = console()
    screen.print()
    if verdict.deltas:
        screen.print(QUESTION)
        print_wide(HEADINGS, [verdict_row(delta) for delta in verdict.deltas], 2, left=("verdict",))
        if any(len(delta.by_seed) == 1 for delta in verdict.deltas):
            screen.print("one seed: no interval; train with --set seed=1, seed=2, … to have one")
    else:
        screen.print("Did federation help? Not known:")
    for warning in verdict.warnings:
        screen.print(f"warning: {warning}", soft_wrap=not screen.is_terminal)
    for note in verdict.notes:
        screen.print(f"note: {note}", soft_wrap=not screen.is_terminal)
