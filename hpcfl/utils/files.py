"""Atomic file writes: a file is written under a temporary name and renamed when it is complete."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

DAY = 86400


@contextlib.contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yields a temporary name in the directory of `path`, unique to this process.

    The `with` block renames the complete file to `path`; a file still there at the end is removed.
    """
    temporary = path.with_name(f"{path.name}.{platform.node()}-{os.getpid()}.part")
    try:
        yield temporary
    finally:
        _remove(temporary)


def remove_leftovers(path: Path) -> None:
    """Removes temporary files of `path` from dead processes: of other hosts when they are a day old."""
    prefix = f"{path.name}.{platform.node()}-"
    for leftover in path.parent.glob(f"{path.name}.*.part"):
        process = leftover.name.removeprefix(prefix).removesuffix(".part")
        if leftover.name.startswith(prefix) and process.isdecimal():  # of this host
            is_dead = not Path(f"/proc/{process}").exists()
        else:
            is_dead = time.time() - leftover.stat().st_mtime > DAY
        if is_dead:
            _remove(leftover)


def fsync(path: Path) -> None:
    """Flushes a file to disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def move_into_place(temporary: Path, path: Path) -> None:
    """Flushes a temporary file to disk and renames it to `path`."""
    fsync(temporary)
    os.replace(temporary, path)


def free_bytes(directory: str | Path) -> int:
    """Returns the free bytes of a file system, without regard to quotas; 0 if the directory is missing."""
    try:
        stats = os.statvfs(directory)
    except OSError:
        return 0
    return stats.f_bavail * stats.f_frsize


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
