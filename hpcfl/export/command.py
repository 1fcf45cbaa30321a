"""`hpcfl export`: writes each run to a directory; only replaces files that an earlier export wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.export import csv_files, tensorboard_events
from hpcfl.export.replace_files import replace_files
from hpcfl.log.reader import read_log
from hpcfl.utils.formatting import print_line

WRITERS = {"csv": csv_files.write, "tensorboard": tensorboard_events.write}


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
    return replace_files(directory, kind, path.name, lambda staging: WRITERS[kind](run, staging))
