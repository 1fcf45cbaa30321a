"""Files that appear whole or not at all."""

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
def part_file(path: Path) -> Iterator[Path]:
    """Yields a name beside `path`, this process's own, to write to.

    The block itself gives the file its final name, when it is whole; what is left aside is removed.
    """
    part = path.with_name(f"{path.name}.{platform.node()}-{os.getpid()}.part")
    try:
        yield part
    finally:
        _remove(part)


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes have left beside `path`: dead ones of this host, others after a day."""
    start = f"{path.name}.{platform.node()}-"
    for left in path.parent.glob(f"{path.name}.*.part"):
        process = left.name.removeprefix(start).removesuffix(".part")
        ours = left.name.startswith(start) and process.isdecimal()
        if not Path(f"/proc/{process}").exists() if ours else time.time() - left.stat().st_mtime > DAY:
            _remove(left)


def fsync(path: Path) -> None:
    """Returns when the file is on disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def move_into_place(part: Path, path: Path) -> None:
    """Gives a file that was written aside its name, once it is on disk."""
    fsync(part)
    os.replace(part, path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
