"""Which run a configuration describes: its identity, and how two of them differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from hpcfl.config.schema import Config

WITHOUT_EFFECT = {
    "data.root",
    *(f"runtime.{name}" for name in ("placement", "arena", "pretend_nodes", "stall_minutes")),
    *(f"runtime.{name}" for name in ("checkpoint_minutes", "checkpoint_rounds", "walltime_minutes")),
}
"""Keys that say where and how a run is done, not which run it is."""
SEED_KEYS = ("seed", "partition.seed")


def fingerprint(config: Config) -> str:
    """Returns eight hex digits that differ between runs."""
    return hashlib.blake2b(repr(_flat(config)).encode(), digest_size=4).hexdigest()


def identity(config: Config, *more: str) -> str:
    """Returns what two runs have in common of which one may be continued as the other: all but the rounds."""
    flat = {key: value for key, value in _flat(config).items() if key != "federation.rounds"}
    return hashlib.blake2b(repr([flat, *more]).encode(), digest_size=16).hexdigest()


def identity_but_for_seeds(config: Config) -> str:
    """Returns what runs have in common that are averaged: all but the seeds, as digits."""
    flat = {key: value for key, value in _flat(config).items() if key not in SEED_KEYS}
    return hashlib.blake2b(repr(flat).encode(), digest_size=8).hexdigest()


def with_rounds(config: Config, rounds: int) -> Config:
    """Returns the same run with another number of rounds."""
    federation = config.federation.model_copy(update={"rounds": rounds})
    return config.model_copy(update={"federation": federation})


def difference(there: Config, here: Config) -> str:
    """Returns the first difference between two runs in words; nothing if they are the same."""
    old, new = _flat(there), _flat(here)
    changed = [key for key in new if old[key] != new[key]]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{changed[0]} = {old[changed[0]]!r} there, {new[changed[0]]!r} here{more}" if changed else ""


def _flat(config: Config) -> dict[str, Any]:
    """Returns every key with its value, but for those that never change a result."""
    return {key: attrgetter(key)(config) for key in keys() if key not in WITHOUT_EFFECT}


def keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Yields the full name of every key."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield prefix + name
