"""A directory as it answers: can it be written to, locked in, and how much is free."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

BLOCK = 4096
"""Bytes that are written on trial: a used-up quota is only noticed then."""


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
    """Where a log would go, as one node sees it."""

    directory: str
    trouble: str = ""
    """Why a file cannot be written there; empty: it can."""
    missing: bool = False
    lock: str = ""
    """Why a lock cannot be had there; empty: it can."""
    free: int = 0
    mount: Mount = Mount()


def probe_output(path: Path) -> OutputDirectory:
    """Tries what a run does beside its log, and leaves nothing behind."""
    directory = path.parent
    name = str(directory.absolute())
    try:
        if path.is_dir():
            return OutputDirectory(name, trouble=f"{path} is a directory")
        if not directory.is_dir():
            there = os.path.lexists(directory)
            return OutputDirectory(
                name, trouble="not a directory" if there else "there is none", missing=not there
            )
        free = free_bytes(directory)
        handle, trial = tempfile.mkstemp(prefix=".hpcfl-doctor-", dir=directory)
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
            os.unlink(trial)
    return OutputDirectory(name, trouble, False, lock, free, mount_of(directory))


def _lock(handle: int) -> str:
    """Returns why a file cannot be locked, or nothing."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def free_bytes(directory: str | Path) -> int:
    """Returns the bytes that this user may still write, none where there is no such place; quotas apart."""
    try:
        there = os.statvfs(directory)
    except OSError:
        return 0
    return there.f_bavail * there.f_frsize


def mount_of(directory: str | Path, table: Path = Path("/proc/self/mounts")) -> Mount:
    """Returns the file system that holds a directory: the last mounted one of the longest path."""
    where = os.path.realpath(directory)
    best, found = -1, Mount()
    try:
        rows = [line.split() for line in table.read_text().splitlines()]
    except OSError:
        return found
    for _, point, kind, options, *_ in (row for row in rows if len(row) >= 4):
        point = point.replace("\\040", " ")
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, found = len(point), Mount(kind, frozenset(options.split(",")))
    return found
