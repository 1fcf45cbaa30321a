"""What can end a run, and how suggestions are worded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(Exception):
    """The user asked for something impossible: one sentence, exit code 2, no traceback."""


class Refused(BadInput):
    """Bad input that every rank knows of, so that each can end by itself."""


class RunFailed(Exception):
    """The run cannot go on, and every rank knows it: one sentence, exit code 1, no traceback."""


class OtherFailed(RunFailed):
    """Another rank cannot go on, and has said why."""


class Fatal(Exception):
    """One rank knows that the run cannot go on: one sentence, exit code 1, and all ranks are ended."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ` (nearest: …)` for the known word most like `word`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (nearest: {found[0]})" if found else ""


def unknown(key: str, value: str, known: Iterable[str]) -> BadInput:
    """Returns the error for a name that is not among the known ones."""
    names = sorted(known)
    return BadInput(f"{key} = {value!r}: allowed is one of {', '.join(names)}{nearest(value, names)}")
