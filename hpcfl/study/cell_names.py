"""Names of cells: file names that say what a cell's values are and depend on nothing else."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hpcfl.study.keys import KNOWN, RANKS, Settings

LONGEST = 120
WORD = 40
UNFIT = re.compile(r"[^A-Za-z0-9._+=-]+")
MARKS = {"seed": "s", "partition.seed": "p", RANKS: "r", "method.name": ""}
"""Keys that one letter, or nothing, tells from all others."""
TIMES = Counter(key.rpartition(".")[2] for key in KNOWN)


def cell_names(cells: Sequence[tuple[str, Settings, Settings]]) -> list[str]:
    """Returns a name for each block, cell of its list and point of its grid.

    Where two are equal, or would be on some file system, both get a digest of their own values.
    """
    plain = [_name(*cell) for cell in cells]
    times = Counter(map(str.lower, plain))
    return [
        name if times[name.lower()] == 1 else _with_digest(name, cell)
        for name, cell in zip(plain, cells, strict=True)
    ]


def _name(block: str, entry: Settings, point: Settings) -> str:
    """Returns block, values of the list with their keys, values of the grid, where the position is enough."""
    parts = [_part(key, value, True) for key, value in entry.items()]
    parts += [_part(key, value, isinstance(value, bool)) for key, value in point.items()]
    whole = "-".join([block, *parts])
    return whole if len(whole) <= LONGEST else _with_digest(whole, (block, entry, point))


def _with_digest(stem: str, values: Any) -> str:
    return f"{stem[: LONGEST - 9]}-{_digest(values, 4)}"


def _part(key: str, value: Any, with_key: bool) -> str:
    if key in MARKS:
        return MARKS[key] + _word(value)
    if not with_key:
        return _word(value)
    last = key.rpartition(".")[2]
    return f"{UNFIT.sub('_', last if TIMES[last] == 1 else key)}={_word(value)}"


def _word(value: Any) -> str:
    """Returns a value as part of a file name; what does not fit is shortened and ends with a digest."""
    said = _said(value)
    if isinstance(value, str | int | float) and 0 < len(said) <= WORD and not UNFIT.search(said):
        return said
    return f"{UNFIT.sub('_', said)[: WORD - 7]}_{_digest(value, 3)}"


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "+".join(map(_said, value))
    if isinstance(value, dict):
        return "+".join(f"{name}={_said(inner)}" for name, inner in value.items())
    return str(value)


def _digest(value: Any, size: int) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=size).hexdigest()
