"""What ranks tell `hpcfl doctor`, made up."""

from __future__ import annotations

import math
from dataclasses import replace

from hpcfl.comm.launcher import Launcher
from hpcfl.comm.mpi_library import MpiLibrary
from hpcfl.doctor.disk import Mount, OutputDirectory
from hpcfl.doctor.finding import Finding
from hpcfl.doctor.rank_info import RankInfo

GIB = 2**30
HYDRA = Launcher("MPICH's mpirun", 5, 0, False)
PRTE = Launcher("Open MPI's mpirun", 5, 0, True)
SRUN = Launcher("srun", 5, 0, None)
MPICH_TEXT = "MPICH Version:      5.0.2\nMPICH Release date: today\nMPICH Device:       ch4:ucx,ofi"
OPEN_TEXT = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"


def job(ranks: int, hosts: int = 1, **more: object) -> list[RankInfo]:
    """Returns what the ranks of a job tell: placed in blocks, 8 cores a host, all of which each may use."""
    found: list[RankInfo] = []
    for rank in range(ranks):
        host = rank * hosts // ranks
        local = sum(each.host == f"n{host}" for each in found)
        base = RankInfo(
            f"n{host}",
            rank,
            local,
            HYDRA if ranks > 1 else None,
            cores=(frozenset(range(8)), math.inf),
            allotted=8,
            shared=(8 * GIB, 16 * GIB),
            temporary=("/tmp", 100 * GIB, Mount("ext4")),
            memory=32 * GIB,
            output=OutputDirectory("/out", free=GIB, mount=Mount("ext4")) if local == 0 else None,
            library=MpiLibrary(MPICH_TEXT, "/opt/mpich/lib/libmpi.so.12", ("libucp",)),
            versions={"hpcfl": "1", "torch": "2.5.0+cpu"},
        )
        found.append(replace(base, **more))  # type: ignore[arg-type]
    return found


def bound(*sets: set[int], there: int = 8, launcher: Launcher = HYDRA) -> list[RankInfo]:
    """Returns what the ranks of a job on one host tell, each of which may use some cores."""
    ranks = job(len(sets), allotted=there, launcher=launcher)
    return [replace(each, cores=(frozenset(own), math.inf)) for each, own in zip(ranks, sets, strict=True)]


def check(finding: Finding, level: str, *words: str) -> None:
    """Checks a finding's level and words; one that is not ok must say what to do."""
    assert finding.level == level, finding
    for word in words:
        assert word in finding.line(), finding
    assert bool(finding.remedy) == (level != "ok"), finding
    assert "\n" not in finding.line()
