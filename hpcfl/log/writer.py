"""Writes the log with atomic writes: the file on disk is always a complete, closed HDF5 file."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcfl.errors import BadInput, Fatal
from hpcfl.log.schema import VERSION
from hpcfl.metrics.metric import ROUNDS_OF, STRING, Metric
from hpcfl.utils.files import fsync, rename_if_free, temporary_path
from hpcfl.utils.hdf5_create import hdf5_bytes
from hpcfl.utils.hdf5_file import open_hdf5

MAX_WRITE_SHARE = 0.015
"""Largest share of a run's time for writing; a write waits until all writes so far fit in this share.

The rest of logging is small, so that all logging stays under 2%.
"""


@dataclass(frozen=True)
class EarlierRows:
    """The rows up to the checkpoint from which a run is continued."""

    run_id: str
    """Of the start that wrote the log; empty: an older version of hpcfl, without ids."""
    start: str
    restarts: int
    rows: Mapping[str, np.ndarray]


class LogWriter:
    """Keeps all rows in memory and writes them to the log file from time to time.

    Each write makes a complete temporary file and renames it, so readers never see half a file, nor does a
    kill leave one. The file lags behind by at most twice the seconds of the last write ÷ MAX_WRITE_SHARE,
    plus one round; `close` writes all rows.
    """

    def __init__(
        self,
        path: Path,
        metrics: Iterable[Metric],
        attributes: Mapping[str, Any],
        sizes: Mapping[str, int],
        fixed: Mapping[str, np.ndarray],
        backup: Path | None = None,
        earlier: EarlierRows | None = None,
    ):
        """Writes the first file; an existing one is refused, renamed to `backup`, or continued by `earlier`.

        `sizes` gives the length of each dimension, `fixed` the datasets that do not grow.
        """
        self.path = path
        self.metrics = {metric.path: metric for metric in metrics}
        self.sizes = sizes
        self.run_id = secrets.token_hex(16)
        self.attributes: dict[str, Any] = {
            "schema": VERSION,
            "run_id": self.run_id,
            "datasets": len(self.metrics),
            "start": _now(),
            "end": "",
            "status": "running",
            "restarts": 0,
            **attributes,
        }
        self.fixed = dict(fixed)
        self.rows: dict[str, list[Any]] = {
            path: [] for path, metric in self.metrics.items() if metric.dims[0] in ("round", *ROUNDS_OF)
        }
        self.rounds_done = 0
        if earlier is not None:
            self.attributes["start"], self.attributes["restarts"] = earlier.start, earlier.restarts
            self.rows |= {path: list(values) for path, values in earlier.rows.items()}
            self.rounds_done = len(self.rows["/round/accuracy"])
        self.start_time, self.write_seconds, self.next_write = time.monotonic(), 0.0, 0.0
        self.id_offset: int | None = None
        """Where the run's id is in the file on disk; None before the first write."""
        self.earlier = earlier
        self.backup_path = backup if os.path.lexists(path) else None
        """New name of the existing log; None: it is not renamed, or there is none."""
        try:
            self._write()
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from None

    def append(
        self, row: Mapping[str, Any], saved: Mapping[str, Any], chosen: Mapping[str, Any] | None = None
    ) -> None:
        """Adds the row of a round, and its datasets by `saved` and by `chosen` round if it has any."""
        given = {"round": row, "saved": saved, "chosen": chosen or {}}
        for path, values in self.rows.items():
            metric = self.metrics[path]
            if part := given[metric.dims[0]]:
                values.append(np.asarray(part[path], dtype=metric.dtype))
        self.rounds_done += 1
        if time.monotonic() >= self.next_write:
            self.write()

    def close(self, status: str) -> None:
        """Writes all rows and the final status of the run."""
        self.attributes |= {"status": status, "end": _now()}
        self.write()

    def write(self) -> None:
        """Writes all rows to disk."""
        try:
            self._write()
        except OSError as error:
            raise Fatal(
                f"cannot write {self.path}: {error.strerror}; the last written file is whole, and the same "
                "command continues from the last checkpoint"
            ) from None

    def _write(self) -> None:
        start, image = time.monotonic(), hdf5_bytes(self._fill)
        with temporary_path(self.path) as temporary:
            with open(temporary, "xb") as file:
                file.write(image)
            fsync(temporary)
            self._move_into_place(temporary)
        seconds = time.monotonic() - start
        # the first write, without rows, is start-up
        self.write_seconds += seconds if self.id_offset is not None else 0.0
        # assumes that the next write takes as long
        self.next_write = self.start_time + (self.write_seconds + seconds) / MAX_WRITE_SHARE
        self.id_offset = image.index(self.run_id.encode())

    def _move_into_place(self, temporary: Path) -> None:
        """Renames the temporary file to the log's path, unless a file of another run is there."""
        if self.id_offset is None and self.earlier is None:
            if self.backup_path is not None:
                rename_if_free(self.path, self.backup_path)
            rename_if_free(temporary, self.path)
            return
        with contextlib.suppress(FileNotFoundError):  # the file was deleted: write it again
            if not self._is_own_file():
                raise Fatal(f"{self.path} is another run's by now; this one keeps its hands off it")
        os.replace(temporary, self.path)

    def _is_own_file(self) -> bool:
        """Returns whether the file at the log's path is the last that was written or, at first, continued."""
        if self.id_offset is None:
            assert self.earlier is not None
            return _identity_on_disk(self.path) == (self.earlier.run_id, self.earlier.start)
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without HDF5: often
        try:
            return os.pread(handle, len(self.run_id), self.id_offset) == self.run_id.encode()
        finally:
            os.close(handle)

    def _fill(self, file: h5py.File) -> None:
        """Writes attributes and all datasets to a new HDF5 file."""
        file.attrs.update(self.attributes)
        for metric in self.metrics.values():
            dataset = file.create_dataset(metric.path, data=self._values(metric))
            dataset.attrs.update(kind=metric.kind, dims=" ".join(metric.dims), about=metric.about)
        file.attrs["rounds_done"] = self.rounds_done

    def _values(self, metric: Metric) -> np.ndarray:
        if metric.path in self.fixed:
            values = self.fixed[metric.path]
            return values.astype(h5py.string_dtype() if metric.dtype == STRING else metric.dtype)
        rows = self.rows[metric.path]
        return np.array(rows, dtype=metric.dtype).reshape(
            len(rows), *(self.sizes[d] for d in metric.dims[1:])
        )


def _identity_on_disk(path: Path) -> tuple[str, str] | None:
    """Returns run id and start of the log in a file; None if it is no log. Raises FileNotFoundError."""
    try:
        with open_hdf5(path) as file:
            return str(file.attrs.get("run_id", "")), str(file.attrs.get("start"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, LookupError, RuntimeError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
