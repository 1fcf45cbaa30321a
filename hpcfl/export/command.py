"""`hpcfl export`: writes each run to a directory; only replaces files that an earlier export wrote."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.export import csv_files, tensorboard_events
from hpcfl.log.reader import read_log
from hpcfl.utils.formatting import print_line
from hpcfl.utils.hdf5_file import read_regular

WRITERS = {"csv": csv_files.write, "tensorboard": tensorboard_events.write}
FILE_NAME = re.compile(r"\w+\.csv|events\.out\.tfevents\.\d+\.hpcfl")
"""Names of exported files."""


def print_exported(paths: Sequence[str], kind: str, out: str | None) -> None:
    """Exports each run and prints its directory."""
    if kind == "tensorboard":
        tensorboard_events.require()
    runs = [Path(path) for path in paths]
    for run in runs:
        if run.is_dir():
            raise BadInput(f"{run} is a directory; export the logs in it, as {run}/*-*.h5")
        if out is not None and run.stem in (".", ".."):
            raise BadInput(f"{run}: {run.stem!r} is no name for a directory in {out}; rename the log")
    directories = [
        run.with_name(f"{run.stem}-{kind}") if out is None else Path(out) / run.stem for run in runs
    ]
    for directory, count in Counter(directories).items():
        if count > 1:
            raise BadInput(
                f"{directory} would hold {count} runs: export them one by one, each with its own -o"
            )
    for run, directory in zip(runs, directories, strict=True):
        files = export(run, kind, directory)
        print_line(f"{run}: {', '.join(files)} in {directory}")


def export(path: Path, kind: str, directory: Path) -> list[str]:
    """Writes a run to a directory, replacing its last export, and returns the names of its files."""
    run = read_log(path, saved=False)
    manifest = f"hpcfl-{kind}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        previous = _previous_files(directory / manifest)
        with tempfile.TemporaryDirectory(prefix=".hpcfl-export-", dir=directory) as staging:
            files = list(WRITERS[kind](run, Path(staging)))
            for name in files:
                if name not in previous and os.path.lexists(directory / name):
                    raise BadInput(f"{directory / name} was not written by an export; choose another -o")
            content = {"run": path.name, "files": sorted({*previous, *files})}
            (Path(staging) / manifest).write_text(json.dumps(content))
            for name in (manifest, *files):
                os.replace(Path(staging) / name, directory / name)
        for name in previous - set(files):
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {directory}: {error.strerror or error}") from None
    return files


def _previous_files(manifest: Path) -> set[str]:
    """Returns the files of the last export that still exist, from its manifest."""
    try:
        names = json.loads(read_regular(manifest))["files"]
        return {name for name in names if FILE_NAME.fullmatch(name) and (manifest.parent / name).is_file()}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{manifest} was not written by an export; choose another -o") from None
