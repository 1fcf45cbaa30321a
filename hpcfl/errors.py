"""The exceptions of hpcfl, and error messages that suggest the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def printable(text: str, keep: str = "") -> str:
    """Returns a text with control characters but `keep` replaced, so that it cannot control a terminal."""
    return "".join(letter if letter.isprintable() or letter in keep else "?" for letter in text)


class BadInput(Exception):
    """An error in the user's input: shown as one sentence without traceback, exit code 2.

    It may quote a damaged or foreign file.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n")


class NoSuchOption(BadInput):
    """A key of [method] that the method does not have; another may have it."""

    def __init__(self, key: str, text: str):
        super().__init__(text)
        self.key = key


class Refused(BadInput):
    """Bad input that every rank has found, so that each rank exits by itself."""


class RunFailed(Exception):
    """The run failed and every rank knows it: shown as one sentence without traceback, exit code 1."""


class OtherFailed(RunFailed):
    """Another rank failed and has reported the reason."""


class Fatal(Exception):
    """The run failed and only this rank knows it: shown as one sentence, exit code 1; aborts all ranks."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ` (nearest: …)` with the known word most similar to `word`, or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (nearest: {matches[0]})" if matches else ""


def nearest_key(key: str, known: Iterable[str]) -> str:
    """Returns ` (nearest: …)` with the known key that is most similar, if one is similar enough.

    The last part of a key decides; one of another section must be more similar than one of the same.
    """
    section, _, last = key.rpartition(".")
    found = []
    for each in known:
        its_section, _, its_last = each.rpartition(".")
        likeness, whole = _likeness(last, its_last), _likeness(key, each)
        if likeness >= (0.55 if section == its_section else 0.75) or whole >= 0.87:
            found.append((section == its_section, likeness, whole, each))
    return f" (nearest: {max(found)[-1]})" if found else ""


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def unknown(key: str, value: str, known: Iterable[str]) -> BadInput:
    """Returns the error for a name that is not among the known ones."""
    names = sorted(known)
    return BadInput(f"{key} = {value!r}: allowed is one of {', '.join(names)}{nearest(value, names)}")
