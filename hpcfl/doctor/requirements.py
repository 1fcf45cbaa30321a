"""What the run will take on the machine that its ranks see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcfl.doctor.rank_checks import by_host
from hpcfl.doctor.rank_info import RankInfo
from hpcfl.doctor.storage_checks import Requirements
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.size import expected_log_size
from hpcfl.models.costs import costs
from hpcfl.plan.forecast import Forecast
from hpcfl.plan.machine import Machine


@dataclass(frozen=True)
class ObservedMachine(Machine):
    """A machine of which it is known which rank is on which node."""

    where: tuple[int, ...]

    def node(self, rank: int) -> int:
        return self.where[rank]


def requirements(plan: RunPlan, infos: Sequence[RankInfo]) -> Requirements:
    """Returns the bytes of arena and memory on each host, and of log and checkpoints."""
    runtime, hosts = plan.config.runtime, list(by_host(infos))
    known = (plan.architectures, plan.data.shape, *plan.dims)
    counted = costs(*known, plan.config.train.batch_size, runtime.inference_batch)
    forecast = Forecast(plan, counted, observed_machine(infos, runtime.device), process_memory())
    states = sum(forecast.layouts.state(i).nbytes for i in range(len(plan.clients)))
    return Requirements(
        {host: forecast.arena(node) for node, host in enumerate(hosts)},
        {host: forecast.node_memory(node).total for node, host in enumerate(hosts)},
        {
            "log": expected_log_size(plan),
            "checkpoints": int(1.5 * states),
        },  # two of them, and one being written
    )


def observed_machine(infos: Sequence[RankInfo], device: str) -> ObservedMachine:
    """Returns the machine that the ranks see; where a GPU is asked for and missing, as if it were there."""
    hosts = list(by_host(infos))
    return ObservedMachine(
        ranks=len(infos),
        nodes=len(hosts),
        devices=max(device == "cuda", *(each.gpus.count for each in infos)),
        cores=min(max(1, math.floor(min(each.allotted, each.cores[1]))) for each in infos),
        memory=min(each.memory for each in infos),
        device_memory=None,
        shared=min(each.shared[0] for each in infos),
        where=tuple(hosts.index(each.host) for each in infos),
    )


def process_memory(rollup: Path = Path("/proc/self/smaps_rollup")) -> tuple[int, int]:
    """Returns the bytes that a rank has by itself and those it shares: about those of this process."""
    try:
        rows = [line.split() for line in rollup.read_text().splitlines()]
        kinds = {row[0]: 1024 * int(row[1]) for row in rows if len(row) == 3}
        return kinds["Anonymous:"], kinds["Rss:"] - kinds["Anonymous:"]
    except (OSError, ValueError, KeyError):
        return 150 * 2**20, 150 * 2**20
