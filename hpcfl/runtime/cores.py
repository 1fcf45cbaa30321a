"""The cores that a job may use: the CPU affinity of its ranks, limited by cgroup quotas."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def cgroup_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float:
    """Returns the CPU quota of this process in cores, the smallest of its cgroups; infinite if unlimited."""
    quota = math.inf
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return quota
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root / "cpu" if "cpu" in controllers.split(",") else root
        innermost = Path(path.lstrip("/"))
        for group in (innermost, *innermost.parents):
            quota = min(quota, _group_quota(base / group))
    return quota


def _group_quota(group: Path) -> float:
    """Returns the quota of one cgroup (v1 or v2) in cores."""
    try:
        if (group / "cpu.max").exists():
            allowed, period = (group / "cpu.max").read_text().split()
        else:
            allowed = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return math.inf if allowed == "max" or int(allowed) < 0 else int(allowed) / int(period)
    except (OSError, ValueError):
        return math.inf


RankCores = tuple[frozenset[int], float]
"""CPU affinity of a rank, and its quota in cores."""


def own_cores() -> RankCores:
    """Returns the cores of this rank; without `sched_getaffinity`, all cores of the host."""
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return frozenset(affinity(0)), cgroup_quota()


def core_limit(
    cores_of: Sequence[RankCores], rank: int, workers: Sequence[int], threads: int
) -> tuple[int, int] | None:
    """Returns a rank's limiter and how many ranks it lets work at a time; None if each rank has its cores.

    Ranks of a node with the same CPU affinity share a limiter; `workers` are the workers of the rank's node.
    """
    affinities = {worker: tuple(sorted(cores_of[worker][0])) for worker in (*workers, rank)}
    affinity, quota = affinities[rank], cores_of[rank][1]
    sharing = [worker for worker in workers if affinities[worker] == affinity]
    slots = max(1, math.floor(min(len(affinity), quota) / threads))
    limiters = sorted({affinities[worker] for worker in workers})
    return (limiters.index(affinity), slots) if len(sharing) > slots else None


def total_cores(ranks: Iterable[tuple[str, RankCores]]) -> int:
    """Returns the cores of a job: on each host the union of its ranks' affinities, within the quota."""
    allowed: dict[str, set[int]] = {}
    quotas: dict[str, float] = {}
    for host, (cores, quota) in ranks:
        allowed.setdefault(host, set()).update(cores)
        quotas[host] = max(quotas.get(host, 0.0), quota)
    return sum(max(1, math.floor(min(len(allowed[host]), quotas[host]))) for host in allowed)
