"""How many cores a job really has: what its ranks may run on, and what its control group may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def cgroup_quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Returns the cores that control groups grant this process; infinite where none limits it."""
    least = math.inf
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return least
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root / "cpu" if "cpu" in controllers.split(",") else root
        inside = Path(path.lstrip("/"))
        for group in (inside, *inside.parents):
            least = min(least, _limit(base / group))
    return least


def _limit(group: Path) -> float:
    """Returns the cores of one control group, of either version."""
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
"""The cores that a rank may run on, and its quota."""


def own_cores() -> RankCores:
    """Returns the cores of this rank; where a system does not tell, all there are."""
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return frozenset(affinity(0)), cgroup_quota()


def core_limit(
    ranks: Sequence[RankCores], me: int, node: Sequence[int], threads: int
) -> tuple[int, int] | None:
    """Returns which gate a rank works behind and how many may pass it; None where there is a core for each.

    Ranks of a node that may run on the same cores share a gate; `node` lists the node's workers.
    """
    groups = sorted({tuple(sorted(ranks[rank][0])) for rank in node})
    mine = tuple(sorted(ranks[me][0]))
    sharing = [rank for rank in node if tuple(sorted(ranks[rank][0])) == mine]
    places = max(1, math.floor(min(len(mine), ranks[me][1]) / threads))
    return (groups.index(mine), places) if len(sharing) > places else None


def total_cores(ranks: Iterable[tuple[str, RankCores]]) -> int:
    """Returns the cores of a job: on each host the union of its ranks' cores, within the quota."""
    allowed: dict[str, set[int]] = {}
    quotas: dict[str, float] = {}
    for host, (cores, limit) in ranks:
        allowed.setdefault(host, set()).update(cores)
        quotas[host] = max(quotas.get(host, 0.0), limit)
    return sum(max(1, math.floor(min(len(allowed[host]), quotas[host]))) for host in allowed)
