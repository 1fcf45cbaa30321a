"""Runs that differ only in seeds form a series; series that share all but the method are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcfl.config.identity import identity_but_for_seeds
from hpcfl.report.records import RunRecord, given_settings


@dataclass(frozen=True, repr=False)
class Series:
    """Runs that differ only in seeds: a row of a table, a line of a figure."""

    label: str
    """The method, and what tells it from other series of its setting."""
    setting: str
    """What its setting differs in from the other settings of the report; empty: there is one."""
    records: tuple[RunRecord, ...]

    @property
    def method(self) -> str:
        return self.records[0].method

    @property
    def name(self) -> str:
        return f"{self.label}, {self.setting}" if self.setting else self.label

    @property
    def finished(self) -> tuple[RunRecord, ...]:
        return tuple(record for record in self.records if record.run.status == "finished")


@dataclass(frozen=True, repr=False)
class Setting:
    """Series of the same data, split, networks and training."""

    name: str
    series: tuple[Series, ...]


def make_settings(records: Sequence[RunRecord]) -> list[Setting]:
    """Returns the series of all runs, by setting, in the order in which they were given."""
    groups = _group(records)
    all_values = [_texts(values) for values in given_settings([group[0] for group in groups])]
    blocks: dict[str, list[dict[str, str]]] = {}
    for values in all_values:
        blocks.setdefault(values.get("block", ""), []).append(values)
    keys = {name: [k for k in _varying(block) if not _of_method(k)] for name, block in blocks.items()}
    by_setting: dict[str, list[int]] = {}
    for i, values in enumerate(all_values):
        own = [key for key in keys[values.get("block", "")] if groups[i][0].has_effect(key)]
        by_setting.setdefault(_words(values, ["block", *own] if len(blocks) > 1 else own), []).append(i)
    settings = []
    for name, members in by_setting.items():
        labels = _labels([all_values[i] for i in members], [groups[i][0].name for i in members])
        found = (Series(label, name, tuple(groups[i])) for label, i in zip(labels, members, strict=True))
        settings.append(Setting(name, tuple(found)))
    return settings


def _group(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Returns runs that differ only in seeds; the same run twice, as on other ranks, is not averaged."""
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        own = [(key, repr(value)) for key, value in record.values.items() if not key.endswith("seed")]
        key = record.block, repr(own), identity_but_for_seeds(record.run.config)
        groups.setdefault(key, []).append(record)
    result = []
    for group in groups.values():
        if max(Counter(record.seeds for record in group).values()) == 1:
            result.append(group)
        else:
            result += [[record] for record in group]
    return result


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of a run as text."""
    return {key: _text(value) for key, value in values.items()}


def _text(value: Any) -> str:
    """Returns a value as text; a list as cnn1+cnn2, because commas stand between settings."""
    if isinstance(value, (list, tuple)):
        return "+".join(map(str, value))
    return "default" if value is None else str(value)


def _of_method(key: str) -> bool:
    return key.startswith(("method.", "log."))


def _varying(all_values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys that have several values."""
    keys = dict.fromkeys(key for values in all_values for key in values)
    return [key for key in keys if len({values.get(key) for values in all_values}) > 1]


def _words(values: Mapping[str, str], keys: Sequence[str]) -> str:
    """Returns keys and their values as text: `clients 20, alpha 0.1`."""
    pairs = [(key.rpartition("."), values[key]) for key in keys if key in values]
    return ", ".join(
        value if word in ("block", "name") else f"{word} {value}" for (_, _, word), value in pairs
    )


def _labels(all_values: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Returns a label for each series of a setting: the method, and what else tells them apart."""
    labels = [values["method.name"] for values in all_values]
    for beginnings in (("method.",), ("log.",)):
        for label in [label for label, count in Counter(labels).items() if count > 1]:
            same = [i for i, each in enumerate(labels) if each == label]
            keys = [key for key in _varying([all_values[i] for i in same]) if key.startswith(beginnings)]
            for i in same:
                words = _words(all_values[i], keys)
                labels[i] = f"{label}, {words}" if words else label
    counts = Counter(labels)
    return [
        f"{label} ({name})" if counts[label] > 1 else label for label, name in zip(labels, names, strict=True)
    ]
