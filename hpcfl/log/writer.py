"""Writes the log: at every instant the file on disk is a complete, closed HDF5 file."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcfl.errors import BadInput, Fatal
from hpcfl.log.schema import BY_PATH, ENTRIES, STRING, VERSION, Entry
from hpcfl.utils.files import fsync, part_file

SHARE = 0.015
"""The most of a run's time that writing may take: a write waits until all writes so far fit in it.

With what else logging does, that stays under 2%.
"""


@dataclass(frozen=True)
class EarlierRows:
    """What a log had before the run was continued: its rows up to the checkpoint."""

    start: str
    restarts: int
    rows: Mapping[str, np.ndarray]


class LogWriter:
    """The rows so far, in memory, and their image on disk.

    A write makes the whole file aside and renames it into place, so a reader or a kill never meets half a
    file. Rows that wait for the next write are at most as old as twice the last write, divided by SHARE, plus
    one round; `close` writes what is left.
    """

    def __init__(
        self,
        path: Path,
        attributes: Mapping[str, Any],
        sizes: Mapping[str, int],
        fixed: Mapping[str, np.ndarray],
        fresh: bool = False,
        before: EarlierRows | None = None,
    ):
        """Puts a log in place; a file that is there is refused, kept aside if `fresh`, or continued.

        `sizes` gives the length of each dimension; `before` holds the rows of a run that is continued.
        """
        self.path = path
        self.sizes = sizes
        self.attributes: dict[str, Any] = {
            "schema": VERSION,
            "start": _now(),
            "end": "",
            "status": "running",
            "restarts": 0,
            **attributes,
        }
        self.fixed = dict(fixed)
        self.rows: dict[str, list[Any]] = {e.path: [] for e in ENTRIES if e.dims[0] in ("round", "saved")}
        self.rounds_done = 0
        if before is not None:
            self.attributes["start"], self.attributes["restarts"] = before.start, before.restarts
            self.rows |= {path: list(values) for path, values in before.rows.items()}
            self.rounds_done = len(self.rows["/round/accuracy"])
        self.began, self.spent, self.next_write = time.monotonic(), 0.0, 0.0
        self.placed = _identity(os.stat(path)) if before is not None else None
        self.fresh, self.kept = fresh, path
        try:
            self._write()
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from None

    def append(self, row: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
        """Adds a round's row, and what this round saves beside it."""
        for path, values in self.rows.items():
            entry = BY_PATH[path]
            if entry.dims[0] == "round":
                values.append(np.asarray(row[path], dtype=entry.dtype))
            elif path in saved:
                values.append(np.asarray(saved[path], dtype=entry.dtype))
        self.rounds_done += 1
        if time.monotonic() >= self.next_write:
            self.write()

    def close(self, status: str) -> None:
        """Writes all rows and how the run ended."""
        self.attributes |= {"status": status, "end": _now()}
        self.write()

    def write(self) -> None:
        """Returns when all rows are on disk."""
        try:
            self._write()
        except OSError as error:
            raise Fatal(
                f"cannot write {self.path}: {error.strerror}; the last written file is whole, and the same "
                "command continues from the last checkpoint"
            ) from None

    def _write(self) -> None:
        start = time.monotonic()
        with part_file(self.path) as part:
            part.write_bytes(self._image())
            fsync(part)
            written = _identity(os.stat(part))
            self._put_in_place(part)
        took = time.monotonic() - start
        self.spent += took if self.placed else 0.0  # the first, of no row yet, is part of the start
        self.next_write = self.began + (self.spent + took) / SHARE  # the next will take as long
        self.placed = written

    def _put_in_place(self, part: Path) -> None:
        """Gives the new file the log's name, which is this run's own from the first time on."""
        if self.placed is None:
            if self.fresh and os.path.lexists(self.path):
                self.kept = keep_aside(self.path)
            _claim(part, self.path)
            return
        with contextlib.suppress(FileNotFoundError):  # taken away: it is put there again
            if _identity(os.stat(self.path)) != self.placed:
                raise Fatal(f"{self.path} is another run's by now; this one keeps its hands off it")
        os.replace(part, self.path)

    def _image(self) -> bytes:
        """Returns the whole file as bytes; HDF5 itself never touches the disk."""
        with h5py.File("log.h5", "w", driver="core", backing_store=False) as file:
            file.attrs.update(self.attributes)
            for entry in ENTRIES:
                dataset = file.create_dataset(entry.path, data=self._values(entry))
                dataset.attrs.update(kind=entry.kind, dims=" ".join(entry.dims), about=entry.about)
            file.attrs["rounds_done"] = self.rounds_done
            file.flush()
            return file.id.get_file_image()

    def _values(self, entry: Entry) -> np.ndarray:
        if entry.path in self.fixed:
            values = self.fixed[entry.path]
            return values.astype(h5py.string_dtype() if entry.dtype == STRING else entry.dtype)
        rows = self.rows[entry.path]
        return np.array(rows, dtype=entry.dtype).reshape(len(rows), *(self.sizes[d] for d in entry.dims[1:]))


def _identity(there: os.stat_result) -> tuple[int, int]:
    return there.st_dev, there.st_ino


def keep_aside(path: Path) -> Path:
    """Renames a file to the next free number, `run.1.h5`, and returns the new name; overwrites nothing."""
    for number in itertools.count(1):
        kept = path.with_suffix(f".{number}{path.suffix}")
        with contextlib.suppress(FileExistsError):
            _claim(path, kept)
            return kept
    raise AssertionError("numbers do not end")


def _claim(there: Path, name: Path) -> None:
    """Gives a file a name only if nobody has it; a hard link decides that in one step."""
    try:
        os.link(there, name)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with open(name, "xb"):
            pass
        os.replace(there, name)
        return
    there.unlink()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
