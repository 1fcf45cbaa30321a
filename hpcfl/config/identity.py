"""Which run a configuration describes: its identity, and how two configurations differ.

Identity depends only on values that differ from their defaults, so that a key which a user did not set never
matters: a later version with more keys gives the same names and continues the same runs. So a default, once
released, must not change: a key that is to behave otherwise gets a new value, or a new name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from hpcfl.config.schema import Config
from hpcfl.utils.digests import digest_of

WITHOUT_EFFECT = {
    "data.root",
    *(f"runtime.{name}" for name in ("placement", "arena", "pretend_nodes", "stall_minutes")),
    "runtime.device_memory",
    *(f"runtime.{name}" for name in ("checkpoint_minutes", "checkpoint_rounds", "checkpoint_disk")),
    "runtime.walltime_minutes",
}
"""Keys that say where and how a run is done, not which run it is."""
SEED_KEYS = ("seed", "partition.seed")


def fingerprint(config: Config) -> str:
    """Returns eight hex digits that differ between runs."""
    return digest_of(_changed(config), 4)


def identity(config: Config, checksums: Mapping[str, str] = {}) -> str:  # nobody changes it
    """Returns what a run shares with those that it may be continued as: all but the number of rounds.

    `checksums` are those of its data, split and other files, by name.
    """
    return digest_of([_changed(config, ["federation.rounds"]), sorted((checksums or {}).items())], 16)


def identity_but_for_seeds(config: Config) -> str:
    """Returns what runs have in common that are averaged: all but the seeds."""
    return digest_of(_changed(config, SEED_KEYS), 8)


def identity_but_for_method(config: Config) -> str:
    """Returns what runs have in common that differ in the method alone; seeds are part of it."""
    return digest_of([pair for pair in _changed(config) if not pair[0].startswith(("method.", "log."))], 8)


def settings(config: Config) -> dict[str, Any]:
    """Returns every key that says which run it is, with its value; seeds are left out."""
    return {key: v for key, v in _values(config) if key not in WITHOUT_EFFECT and key not in SEED_KEYS}


def with_rounds(config: Config, rounds: int) -> Config:
    """Returns the same run with another number of rounds."""
    federation = config.federation.model_copy(update={"rounds": rounds})
    return config.model_copy(update={"federation": federation})


def difference(there: Config, here: Config, names: tuple[str, str] = ("there", "here")) -> str:
    """Returns the first difference between two runs in words; nothing if they are the same."""
    old, new = (dict(_values(config)) for config in (there, here))
    changed = [
        key for key in old | new if key not in WITHOUT_EFFECT and _text(old.get(key)) != _text(new.get(key))
    ]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    if not changed:
        return ""
    key = changed[0]
    return f"{key} = {old.get(key)!r} {names[0]}, {new.get(key)!r} {names[1]}{more}"


def differing(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """Returns every key in which runs differ, with its value in each of them."""
    all_values = [dict(_values(config)) for config in configs]
    names = dict.fromkeys(key for values in all_values for key in values)
    by_key = {key: [values.get(key) for values in all_values] for key in names}
    return {key: found for key, found in by_key.items() if len({_text(value) for value in found}) > 1}


def keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Yields the full name of every key."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def _changed(config: Config, without: Collection[str] = ()) -> list[tuple[str, str]]:
    """Returns the keys that change a result and are not at their defaults, sorted, with their values."""
    default = dict(_values(type(config)()))
    return sorted(
        (key, text)
        for key, value in _values(config)
        if key not in WITHOUT_EFFECT
        and key not in without
        and (text := _text(value)) != _text(default.get(key))
    )


def _values(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every key with its value."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
    for name, value in (model.model_extra or {}).items():
        yield prefix + name, value


def _text(value: Any) -> str:
    """Returns a text that is equal for equal values; 1 client and 1.0 of all clients differ."""
    return repr(sorted(value.items()) if isinstance(value, dict) else value)
