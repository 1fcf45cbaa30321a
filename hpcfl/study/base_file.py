"""What all blocks of a study share, from its file and from the base files that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcfl.config.loading import parse_toml, read_text
from hpcfl.errors import BadInput
from hpcfl.study.cells import Rule
from hpcfl.study.file_tables import check_table, grid_of, rules
from hpcfl.study.keys import RANKS, Settings, flatten, merge_settings

SHARED_TYPES = {"base": str, "config": str, "set": dict, "grid": dict, "when": list, "small": dict}
"""Keys of a base file, which a study file has too, with their types."""
SMALL_TYPES = {"set": dict, "grid": dict, "replace": list}
MAX_DEPTH = 8


@dataclass
class Shared:
    """What all blocks of a study share."""

    settings: Settings = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    has_small: bool = False
    small_settings: Settings = field(default_factory=dict)
    small_grid: dict[str, list[Any]] = field(default_factory=dict)
    replacements: list[Rule] = field(default_factory=list)


def read_shared(table: Mapping[str, Any], folder: Path, depth: int = 0) -> Shared:
    """Returns what the blocks of a file share: its base file's tables, with its own added to them."""
    shared = Shared()
    if "base" in table:
        path = folder / table["base"]
        if depth == MAX_DEPTH:
            raise BadInput(f"base = {table['base']!r}: more than {MAX_DEPTH} base files, one naming another")
        try:
            base = check_table(parse_toml(read_text(path, "base file"), path), SHARED_TYPES, "")
            shared = read_shared(base, path.parent, depth + 1)
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None
    small = check_table(table.get("small", {}), SMALL_TYPES, "[small]: ")
    own = merge_settings(_config(table, folder), flatten(table.get("set", {}), "[set]: "))
    shared.settings = merge_settings(shared.settings, own)
    shared.grid |= grid_of(table, "")
    shared.rules += rules(table, "when", "")
    shared.has_small |= "small" in table
    shared.small_settings = merge_settings(
        shared.small_settings, flatten(small.get("set", {}), "[small] set: ")
    )
    shared.small_grid |= grid_of(small, "[small] ")
    shared.replacements += rules(small, "replace", "[small] ")
    return shared


def _config(table: Mapping[str, Any], folder: Path) -> Settings:
    """Returns the settings of the configuration file that the table names, if it names one."""
    if "config" not in table:
        return {}
    path = folder / table["config"]
    settings = flatten(parse_toml(read_text(path), path), f"{path}: ")
    if RANKS in settings:
        raise BadInput(f"{path}: {RANKS} is not a key of a configuration; it goes into set")
    return settings
