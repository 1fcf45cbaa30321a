"""Atomic file writes: a file is written under a temporary name and renamed when it is complete."""

from __future__ import annotations

import contextlib
import glob
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from hpcfl.errors import BadInput

DAY = 86400


@contextlib.contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yields a temporary name in the directory of `path`; nobody can put a link there, as none can guess it.

    The `with` block renames the complete file to `path`; a file still there at the end is removed.
    """
    temporary = path.with_name(f"{path.name}.{platform.node()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    try:
        yield temporary
    finally:
        _remove(temporary)


def remove_leftovers(path: Path) -> None:
    """Removes temporary files of `path` from dead processes: of other hosts when they are a day old."""
    prefix = f"{path.name}.{platform.node()}-"
    for leftover in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        process = leftover.name.removeprefix(prefix).removesuffix(".part").partition("-")[0]
        if leftover.name.startswith(prefix) and process.isdecimal():  # of this host
            is_dead = not Path(f"/proc/{process}").exists()
        else:
            try:
                is_dead = time.time() - leftover.lstat().st_mtime > DAY
            except FileNotFoundError:  # its process has just completed it
                continue
        if is_dead:
            _remove(leftover)


def fsync(path: Path) -> None:
    """Flushes a file to disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flushes a directory's entries to disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def move_into_place(temporary: Path, path: Path) -> None:
    """Flushes a temporary file to disk and renames it to `path`."""
    fsync(temporary)
    os.replace(temporary, path)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a whole file: `path` has the old content or the new one, also after a crash or a full disk."""
    with temporary_path(path) as temporary:
        with open(temporary, "xb") as file:
            file.write(data)
        move_into_place(temporary, path)


def rename_if_free(old: Path, new: Path) -> None:
    """Renames a file unless the new name exists; a hard link makes check and rename one atomic step."""
    try:
        os.link(old, new)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with open(new, "xb"):
            pass
        os.replace(old, new)
        return
    old.unlink()


def absolute_path(path: Path) -> Path:
    """Returns a path that stays the same when a user's network changes the working directory."""
    try:
        return path.absolute()
    except FileNotFoundError:
        raise BadInput(f"cannot write {path}: the working directory is gone") from None


def make_parents(path: Path) -> None:
    """Makes the directories in which a file is to lie; raises BadInput where that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # a file: whoever writes there says so
        pass
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.filename}: {error.strerror}") from None


@contextlib.contextmanager
def preserve_working_directory() -> Iterator[None]:
    """Returns to the working directory at the end, if a user's code has changed it."""
    try:
        before = os.getcwd()
    except OSError:  # it is gone
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.chdir(before)


def free_bytes(directory: str | Path) -> int:
    """Returns the free bytes of a file system, without regard to quotas; 0 if the directory is missing."""
    try:
        stats = os.statvfs(directory)
    except OSError:
        return 0
    return stats.f_bavail * stats.f_frsize


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        is_directory = path.is_dir() and not path.is_symlink()
        shutil.rmtree(path) if is_directory else path.unlink(missing_ok=True)
