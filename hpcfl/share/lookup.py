"""Finds a configuration or study by path, or by the name of a shipped one."""

from __future__ import annotations

import os
from pathlib import Path

from hpcfl.errors import BadInput, nearest

CONFIGS = Path(__file__).parent / "configs"
STUDIES = CONFIGS / "studies"
REFERENCES = Path(__file__).parent / "reference"
"""Published numbers, one file per paper."""


def find_config(given: str | Path) -> Path:
    """Returns the file at that path if there is one, else the shipped configuration of that name."""
    return _find(given, CONFIGS, "configuration")


def find_study(given: str | Path) -> Path:
    """Returns the file at that path if there is one, else the shipped study of that name."""
    return _find(given, STUDIES, "study")


def shipped(folder: Path) -> list[tuple[str, ...]]:
    """Returns the name of each file in CONFIGS or STUDIES, and what its first line says before a colon."""
    return [
        (name, path.read_text("utf-8").partition("\n")[0].lstrip("# ").partition(":")[0].rstrip("."))
        for name, path in _files(folder).items()
    ]


def _files(folder: Path) -> dict[str, Path]:
    """Returns the shipped files by name: "fedtgp", or "papers/fedtgp-table10" in a folder of studies."""
    files = sorted(folder.glob("**/*.toml" if folder == STUDIES else "*.toml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def _find(given: str | Path, folder: Path, kind: str) -> Path:
    path, name, files, studies = Path(given), str(given), _files(folder), _files(STUDIES)
    folders = {file.rpartition("/")[0] for file in studies} - {""}
    is_name = os.sep not in name or name.rpartition(os.sep)[0] in folders
    if path.is_file() or path.suffix == ".toml" or not is_name:
        return path
    if name in files:
        if Path(f"{name}.toml").exists():
            raise BadInput(
                f"{kind} {name}: a file {name}.toml is here, and one is shipped: write {name}.toml"
            )
        return files[name]
    if path.exists():  # a directory: whoever reads it says so
        return path
    if kind == "configuration" and name in studies:
        raise BadInput(f"{name} is a study: hpcfl study run {name}")
    raise BadInput(
        f"cannot read {kind} {given}: No such file, and no shipped {kind} has this name"
        f"{nearest(name, files)}; hpcfl catalog lists them"
    )
