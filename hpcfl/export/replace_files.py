"""Writes a set of files into a directory, replacing those that the last export wrote there, and no others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.utils.hdf5_file import read_regular

SUFFIXES = "csv|tex|md|svg|pdf|png|html|toml|json|pt|pt2"
FILE_NAME = re.compile(
    rf"(?:(?:figures|tables|configs)/)?[\w-]+\.(?:{SUFFIXES})|events\.out\.tfevents\.\d+\.hpcfl"
    r"|(?:offline-run-\d{8}_\d{6}-[0-9a-z]+/)?run-[0-9a-z]+\.wandb|mlflow\.db"
)
"""Names of exported files, relative to the directory."""


def replace_files(
    directory: Path, kind: str, source: str, write: Callable[[Path], Iterable[str]]
) -> list[str]:
    """Lets `write` fill an empty directory, moves its files into place, and returns their names.

    Files of an earlier export are listed in `hpcfl-KIND.json`; others are never overwritten.
    """
    manifest = f"hpcfl-{kind}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        previous = _previous_files(directory, manifest)
        with tempfile.TemporaryDirectory(prefix=".hpcfl-export-", dir=directory) as staging:
            files = list(write(Path(staging)))
            for name in files:
                if name not in previous and os.path.lexists(directory / name):
                    raise BadInput(f"{directory / name} was not written by an export; choose another -o")
            for folder in {(directory / name).parent for name in files} - {directory}:
                if folder.is_symlink():
                    raise BadInput(f"{folder} is a link; choose another -o")
                folder.mkdir(exist_ok=True)
            content = {"run": source, "files": sorted({*previous, *files})}
            (Path(staging) / manifest).write_text(json.dumps(content))
            for name in (manifest, *files):
                os.replace(Path(staging) / name, directory / name)
        for name in previous - set(files):
            (directory / name).unlink(missing_ok=True)
            if "/" in name:
                with contextlib.suppress(OSError):  # unless something else is in it
                    (directory / name).parent.rmdir()
    except OSError as error:
        raise BadInput(f"cannot write to {directory}: {error.strerror or error}") from None
    return files


def _previous_files(directory: Path, manifest: str) -> set[str]:
    """Returns the files of the last export that still exist, from its manifest."""
    try:
        names = json.loads(read_regular(directory / manifest))["files"]
        known = {name for name in names if FILE_NAME.fullmatch(name) and (directory / name).is_file()}
        return {name for name in known if "/" not in name or not (directory / name).parent.is_symlink()}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{directory / manifest} was not written by an export; choose another -o") from None
