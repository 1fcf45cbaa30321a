"""Names of cells: file names made from the block and the cell's own values alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hpcfl.study.keys import ALL_KEYS, RANKS, Settings
from hpcfl.utils.digests import digest_of

MAX_LENGTH = 120
MAX_VALUE_LENGTH = 40
UNSAFE = re.compile(r"[^A-Za-z0-9._+=-]+")
KEY_PREFIXES = {"seed": "s", "partition.seed": "p", RANKS: "r", "method.name": ""}
"""Keys that are shortened to one letter or left out in names."""
LAST_WORD_COUNTS = Counter(key.rpartition(".")[2] for key in ALL_KEYS)


def cell_names(cells: Sequence[tuple[str, Settings, Settings]]) -> list[str]:
    """Returns a name for each (block, list entry, grid point).

    Names that are equal, ignoring case as some file systems do, get a digest of the cell's values.
    """
    names = [_name(*cell) for cell in cells]
    counts = Counter(map(str.lower, names))
    return [
        name if counts[name.lower()] == 1 else _with_digest(name, cell)
        for name, cell in zip(names, cells, strict=True)
    ]


def _name(block: str, entry: Settings, point: Settings) -> str:
    """Returns the block, list values with their keys, and grid values without, as their order is fixed."""
    parts = [_part(key, value, True) for key, value in entry.items()]
    parts += [_part(key, value, isinstance(value, bool)) for key, value in point.items()]
    name = "-".join([block, *parts])
    return name if len(name) <= MAX_LENGTH else _with_digest(name, (block, entry, point))


def _with_digest(stem: str, values: Any) -> str:
    return f"{stem[: MAX_LENGTH - 9]}-{digest_of(values, 4)}"


def _part(key: str, value: Any, with_key: bool) -> str:
    if key in KEY_PREFIXES:
        return KEY_PREFIXES[key] + _value_text(value)
    if not with_key:
        return _value_text(value)
    last = key.rpartition(".")[2]
    return f"{UNSAFE.sub('_', last if LAST_WORD_COUNTS[last] <= 1 else key)}={_value_text(value)}"


def _value_text(value: Any) -> str:
    """Returns a value as part of a file name; a long or unsafe one is shortened and ends with a digest."""
    text = _plain_text(value)
    if isinstance(value, str | int | float) and 0 < len(text) <= MAX_VALUE_LENGTH and not UNSAFE.search(text):
        return text
    return f"{UNSAFE.sub('_', text)[: MAX_VALUE_LENGTH - 7]}_{digest_of(value, 3)}"


def _plain_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "+".join(map(_plain_text, value))
    if isinstance(value, dict):
        return "+".join(f"{name}={_plain_text(inner)}" for name, inner in value.items())
    return str(value)
