"""Shared memory that killed jobs have left behind."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHARED = (
    *("mpich_shm_", "mpich_vci_", "mpich_s_shar_tmp", "mpich_shar_tmp"),
    *("sm_segment.", "vader_segment.", "osc_sm.", "osc_rdma."),
    *("ucx_shm_posix_", "psm2_shm.", "psm3_shm."),
)
"""How names in shared memory begin: MPICH's, Open MPI's, and those of transports that both use."""
TEMPORARY = ("hpcfl-arena-",)
"""The same in the temporary directory."""
YOUNG = 60.0
"""Seconds in which a file may be made and not be mapped yet."""


@dataclass(frozen=True)
class Segment:
    path: str
    nbytes: int


def stale_segments(
    shared: Path, temporary: Path, proc: Path = Path("/proc"), now: float | None = None
) -> list[Segment]:
    """Returns the segments of this user that none of their processes maps, nor any of the same job."""
    now = time.time() if now is None else now
    found = [*_own(shared, SHARED), *_own(temporary, TEMPORARY)]
    if not found:
        return []
    used = {_job(path) for path in _mapped(proc)}
    used |= {_job(each.path) for each, changed in found if now - changed < YOUNG}
    return sorted((each for each, _ in found if _job(each.path) not in used), key=lambda each: each.path)


def _job(path: str) -> str:
    """Returns a segment's name without the number that tells those of one job apart."""
    return re.sub(r"[._]\d+$", "", path)


def _own(directory: Path, beginnings: tuple[str, ...]) -> Iterable[tuple[Segment, float]]:
    """Yields the files of this user that begin so, and when they last changed."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            with contextlib.suppress(OSError):
                there = entry.stat(follow_symlinks=False)
                if entry.name.startswith(beginnings) and there.st_uid == os.getuid():
                    yield Segment(entry.path, there.st_size), max(there.st_mtime, there.st_ctime)


def _mapped(proc: Path) -> set[str]:
    """Returns the files that processes of this user have mapped or open."""
    used: set[str] = set()
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or does not show itself
            if process.stat().st_uid != os.getuid():
                continue
            for line in (process / "maps").read_text(errors="replace").splitlines():
                used.add(line.split(maxsplit=5)[-1])
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    used.add(os.readlink(handle))
    return used
