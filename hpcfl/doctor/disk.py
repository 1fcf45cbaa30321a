"""Tests of a directory: whether files can be written and locked there, and how much space is free."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hpcfl.runtime.lock import is_locked
from hpcfl.utils.files import free_bytes

BLOCK = 4096
"""Bytes written as a test, because an exhausted quota is only noticed on writing."""


@dataclass(frozen=True)
class Mount:
    """The file system of a path."""

    kind: str = "unknown"
    options: frozenset[str] = frozenset()

    @property
    def is_remote(self) -> bool:
        return self.kind.partition(".")[0] in REMOTE


REMOTE = frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "pvfs2", "panfs", "fuse", "9p")
)


@dataclass(frozen=True)
class OutputDirectory:
    """The directory of the log, as one node sees it."""

    directory: str
    trouble: str = ""
    """Why a file cannot be written there; empty if it can."""
    lock: str = ""
    """Why a file cannot be locked there; empty if it can."""
    held: str = ""
    """The lock file of the log, if a job holds it."""
    free: int = 0
    mount: Mount = Mount()


def probe_output(path: Path) -> OutputDirectory:
    """Writes and locks a temporary file beside the log, and removes it.

    Directories that are missing would be made, so the nearest one that exists is tried.
    """
    directory = next(each for each in path.absolute().parents if os.path.lexists(each))
    name = str(directory.absolute())
    try:
        if path.is_dir():
            return OutputDirectory(name, trouble=f"{path} is a directory")
        if not directory.is_dir():
            return OutputDirectory(name, trouble="not a directory")
        free = free_bytes(directory)
        handle, test_file = tempfile.mkstemp(prefix=".hpcfl-doctor-", dir=directory)
    except OSError as error:
        return OutputDirectory(name, trouble=error.strerror or str(error))
    trouble = lock = ""
    try:
        os.write(handle, bytes(BLOCK))
        os.fsync(handle)
        lock = _lock(handle)
    except OSError as error:
        trouble = error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(test_file)
    held = f"{path}.lock" if is_locked(path) else ""
    return OutputDirectory(name, trouble, lock, held, free, mount_of(directory))


def _lock(handle: int) -> str:
    """Returns why a file cannot be locked; empty if it can."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def mount_of(directory: str | Path, table: Path = Path("/proc/self/mounts")) -> Mount:
    """Returns the file system of a directory: the last one mounted at the longest matching path."""
    real = os.path.realpath(directory)
    length, mount = -1, Mount()
    try:
        rows = [line.split() for line in table.read_text().splitlines()]
    except OSError:
        return mount
    for _, point, kind, options, *_ in (row for row in rows if len(row) >= 4):
        point = point.replace("\\040", " ")
        contains = real == point or real.startswith(point.rstrip("/") + "/")
        if contains and len(point) >= length:
            length, mount = len(point), Mount(kind, frozenset(options.split(",")))
    return mount
