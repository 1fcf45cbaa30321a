"""Cells of a study: as drafts, and checked; options that a method does not have are left out of drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcfl.config.loading import check_tables
from hpcfl.config.method import MethodConfig
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput, NoSuchOption
from hpcfl.methods.catalogue import check_method
from hpcfl.models.registry import client_architectures
from hpcfl.study.keys import ALL_KEYS, RANKS, Settings, nest, short_repr


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    name: str
    """Stem of its log's file name, unique in the study; it depends on the block and `values` alone."""
    block: str
    values: Mapping[str, Any]
    """The settings that come from the block's list and grid: full key → value, in the order of the file."""
    settings: Mapping[str, Any]
    """All settings that replace defaults, without ranks."""
    ranks: int | None
    """Number of MPI ranks that it must run on; None: any."""
    config: Config | None
    """None if the settings are invalid; `problem` says why."""
    problem: str = ""


class Draft:
    """A cell that is not checked yet: named after some settings, at small scale used with others."""

    def __init__(self, block: str, entry: Settings, point: Settings, named: Settings, used: Settings) -> None:
        self.block, self.entry, self.point, self.settings = block, entry, point, used
        parts_of_tables = {key: value for key, value in (entry | point).items() if key not in ALL_KEYS}
        self.all_settings = named | parts_of_tables

    @property
    def method(self) -> str:
        return str(self.all_settings.get("method.name", MethodConfig().name))

    def without(self, keys: set[str]) -> Draft:
        """Returns the draft without some keys of its grid."""
        point, named, used = (
            {key: value for key, value in settings.items() if key not in keys}
            for settings in (self.point, self.all_settings, self.settings)
        )
        return Draft(self.block, self.entry, point, named, used)

    def missing_options(self) -> set[str]:
        """Returns the keys of its grid that its method does not have."""
        missing: set[str] = set()
        while any(key.startswith("method.") and key != "method.name" for key in self.point.keys() - missing):
            try:
                _load_config({k: v for k, v in self.settings.items() if k not in {RANKS, *missing}})
            except NoSuchOption as error:
                if error.key not in self.point:
                    break
                missing.add(error.key)
                continue
            except BadInput:
                pass
            break
        return missing

    def cell(self, name: str) -> Cell:
        """Returns the checked cell."""
        # an override of models.list removes models.group from the settings, and the other way round
        values = {key: self.all_settings[key] for key in self.entry | self.point if key in self.all_settings}
        settings = {key: value for key, value in self.settings.items() if key != RANKS}
        ranks, config, problem = self.settings.get(RANKS), None, ""
        if ranks is not None and (type(ranks) is not int or ranks < 1):
            problem, ranks = f"ranks = {short_repr(ranks)}: must be a whole number of at least 1", None
        else:
            try:
                config = _load_config(settings)
            except BadInput as error:
                problem = str(error)
        return Cell(name, self.block, values, settings, ranks, config, problem)


def leave_out_missing_options(drafts: Sequence[Draft]) -> tuple[list[Draft], tuple[str, ...]]:
    """Returns the drafts without options of the grid that their methods lack, and a note for each option.

    What then is the same run appears once. An option that no method of its block has stays, and is refused.
    """
    missing = [draft.missing_options() for draft in drafts]
    known = {
        (draft.block, key)
        for draft, keys in zip(drafts, missing, strict=True)
        for key in draft.point.keys() - keys
    }
    kept: list[Draft] = []
    shortened: set[str] = set()
    methods: dict[str, dict[str, None]] = {}
    for draft, keys in zip(drafts, missing, strict=True):
        left_out = {key for key in keys if (draft.block, key) in known}
        if left_out:
            draft = draft.without(left_out)
            if (text := f"{draft.block} {draft.entry} {draft.point}") in shortened:
                continue
            shortened.add(text)
        kept.append(draft)
        for key in sorted(left_out):
            methods.setdefault(key, {})[draft.method] = None
    words = (f"{key} is left out for {', '.join(names)}: no such option" for key, names in methods.items())
    return kept, tuple(words)


def _load_config(settings: Settings) -> Config:
    """Returns the configuration; raises BadInput as far as can be checked without the data."""
    config = check_method(check_tables(nest(settings)))
    client_architectures(config.models)
    return config
