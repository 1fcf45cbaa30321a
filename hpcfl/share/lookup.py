"""Finds a configuration or study by path, or by the name of a shipped one."""

from __future__ import annotations

import os
from pathlib import Path

from hpcfl.errors import BadInput, nearest

CONFIGS = Path(__file__).parent / "configs"
STUDIES = CONFIGS / "studies"


def find_config(given: str | Path) -> Path:
    """Returns the file at that path if there is one, else the shipped configuration of that name."""
    return _find(given, CONFIGS, "configuration")


def find_study(given: str | Path) -> Path:
    """Returns the file at that path if there is one, else the shipped study of that name."""
    return _find(given, STUDIES, "study")


def shipped(folder: Path) -> list[tuple[str, ...]]:
    """Returns the name of each file in CONFIGS or STUDIES, and what its first line says before a colon."""
    return [
        (path.stem, path.read_text("utf-8").partition("\n")[0].lstrip("# ").partition(":")[0].rstrip("."))
        for path in sorted(folder.glob("*.toml"))
    ]


def _find(given: str | Path, folder: Path, kind: str) -> Path:
    path, name = Path(given), str(given)
    if path.is_file() or os.sep in name or path.suffix == ".toml":  # a path, never a name
        return path
    files = {file.stem: file for file in sorted(folder.glob("*.toml"))}
    if name in files:
        if Path(f"{name}.toml").exists():
            raise BadInput(
                f"{kind} {name}: a file {name}.toml is here, and one is shipped: write {name}.toml"
            )
        return files[name]
    if path.exists():  # a directory: whoever reads it says so
        return path
    raise BadInput(
        f"cannot read {kind} {given}: No such file, and no shipped {kind} has this name"
        f"{nearest(name, files)}; hpcfl catalog lists them"
    )
