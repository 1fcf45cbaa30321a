"""Creates HDF5 files such that no failed write is lost: h5py swallows one that happens while it closes."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py

from hpcfl.utils.hdf5_file import sealed


def hdf5_bytes(fill: Callable[[h5py.File], None]) -> bytes:
    """Returns the HDF5 file that `fill` fills, made in memory, with its trailer: for files that are small."""
    with h5py.File("memory.h5", "w", driver="core", backing_store=False) as file:
        fill(file)
        file.flush()
        image = file.id.get_file_image()
    return sealed(image)  # HDF5's own copy is freed by now


@contextlib.contextmanager
def create_hdf5(path: Path) -> Iterator[h5py.File]:
    """Yields a new HDF5 file on disk, for what is large; raises OSError if any write to it failed.

    The caller then appends its trailer, with `append_trailer`.
    """
    with _OutputStream(path, "x+") as stream:
        try:
            with h5py.File(stream, "w", libver="earliest") as file:
                yield file
        finally:
            if stream.error is not None:
                raise stream.error


class _OutputStream(io.FileIO):
    """A file that keeps the first error of a write.

    After an error it discards what comes, so that HDF5 can close the file; where it cannot, it crashes later.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes all of the data, or raises."""
        view = memoryview(data).cast("B")
        done = 0
        while self.error is None and done < len(view):
            done += self._try(super().write, view[done:])
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        return self._try(super().truncate, size) if self.error is None else 0

    def _try(self, function: Callable[[Any], int], argument: Any) -> int:
        try:
            return function(argument)
        except OSError as error:
            self.error = error
            raise
