"""Shared-memory segments that killed jobs have left behind."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHM_PREFIXES = (
    *("mpich_shm_", "mpich_vci_", "mpich_s_shar_tmp", "mpich_shar_tmp"),
    *("sm_segment.", "vader_segment.", "osc_sm.", "osc_rdma."),
    *("hpcfl-arena-", "ucx_shm_posix_", "psm2_shm.", "psm3_shm."),
)
"""Prefixes of files in /dev/shm: of MPICH, of Open MPI, and of transports that both use."""
TMP_PREFIXES = ("hpcfl-arena-",)
"""Prefixes of files in the temporary directory."""
MIN_AGE = 60.0
"""Younger files, in seconds, are not stale: they may not be mapped yet."""


@dataclass(frozen=True)
class Segment:
    path: str
    nbytes: int


def stale_segments(
    shared: Path, temporary: Path, proc: Path = Path("/proc"), now: float | None = None
) -> list[Segment]:
    """Returns this user's segments of jobs of which no process maps any segment."""
    now = time.time() if now is None else now
    candidates = [*_own(shared, SHM_PREFIXES), *_own(temporary, TMP_PREFIXES)]
    if not candidates:
        return []
    used = {_job(path) for path in _mapped(proc)}
    used |= {_job(each.path) for each, changed in candidates if now - changed < MIN_AGE}
    return sorted((each for each, _ in candidates if _job(each.path) not in used), key=lambda each: each.path)


def _job(path: str) -> str:
    """Returns a segment's path without its number within the job."""
    return re.sub(r"[._]\d+$", "", path)


def _own(directory: Path, prefixes: tuple[str, ...]) -> Iterable[tuple[Segment, float]]:
    """Yields the files of this user with one of the prefixes, and when they last changed."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if entry.name.startswith(prefixes) and info.st_uid == os.getuid():
                    yield Segment(entry.path, info.st_size), max(info.st_mtime, info.st_ctime)


def _mapped(proc: Path) -> set[str]:
    """Returns the files that processes of this user have mapped or open."""
    used: set[str] = set()
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or may not be read
            if process.stat().st_uid != os.getuid():
                continue
            for line in (process / "maps").read_text(errors="replace").splitlines():
                used.add(line.split(maxsplit=5)[-1])
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    used.add(os.readlink(handle))
    return used
