"""`hpcfl export`: one directory for each run, and nothing overwritten that was not exported."""

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
from hpcfl.log.reader import EVERYTHING, read_log
from hpcfl.log.schema import BY_PATH

WRITERS = {"csv": csv_files.write, "tensorboard": tensorboard_events.write}
NAME = re.compile(r"\w+\.csv|events\.out\.tfevents\.\d+\.hpcfl")
"""What an exported file may be called."""
ROWS = {path: part for path, part in EVERYTHING.items() if BY_PATH[path].dims[0] != "saved"}


def print_exported(paths: Sequence[str], kind: str, out: str | None) -> None:
    """Exports every run and prints where it is."""
    if kind == "tensorboard":
        tensorboard_events.require()
    runs = [Path(path) for path in paths]
    for run in runs:
        if run.is_dir():
            raise BadInput(f"{run} is a directory; export the logs in it, as {run}/*-*.h5")
    places = [run.with_name(f"{run.stem}-{kind}") if out is None else Path(out) / run.stem for run in runs]
    for place, times in Counter(places).items():
        if times > 1:
            raise BadInput(f"{place} would hold {times} runs: export them one by one, each with its own -o")
    for run, place in zip(runs, places, strict=True):
        files = export(run, kind, place)
        print(f"{run}: {', '.join(files)} in {place}")


def export(path: Path, kind: str, place: Path) -> list[str]:
    """Writes a run to a directory, in place of its last export, and returns the names of its files."""
    run = read_log(path, ROWS)
    own = f"hpcfl-{kind}.json"
    try:
        place.mkdir(parents=True, exist_ok=True)
        old = _exported(place / own)
        with tempfile.TemporaryDirectory(prefix=".hpcfl-export-", dir=place) as aside:
            new = list(WRITERS[kind](run, Path(aside)))
            for name in new:
                if name not in old and os.path.lexists(place / name):
                    raise BadInput(f"{place / name} was not written by an export; choose another -o")
            (Path(aside) / own).write_text(json.dumps({"run": path.name, "files": sorted({*old, *new})}))
            for name in (own, *new):
                os.replace(Path(aside) / name, place / name)
        for name in old - set(new):
            (place / name).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {place}: {error.strerror or error}") from None
    return new


def _exported(own: Path) -> set[str]:
    """Returns the files that the last export left, by what it noted."""
    try:
        listed = json.loads(own.read_bytes())["files"]
        return {name for name in listed if NAME.fullmatch(name) and (own.parent / name).is_file()}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{own} was not written by an export; choose another -o") from None
