"""The memory and disk space that a run will need on the machine that its ranks see."""

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
    """A machine with the observed node of each rank."""

    node_of_rank: tuple[int, ...]

    def node(self, rank: int) -> int:
        return self.node_of_rank[rank]


def requirements(plan: RunPlan, infos: Sequence[RankInfo]) -> Requirements:
    """Returns the bytes of arena and memory on each host, and of log and checkpoints."""
    runtime, hosts = plan.config.runtime, list(by_host(infos))
    dimensions = (plan.architectures, plan.data.shape, *plan.dims)
    batches = plan.config.train.batch_size, runtime.inference_batch
    costs_by_name = costs(*dimensions, *batches, plan.data.input_type)
    forecast = Forecast(plan, costs_by_name, observed_machine(infos, runtime.device), process_memory())
    states = sum(forecast.layouts.state(i).nbytes for i in range(len(plan.clients)))
    return Requirements(
        {host: forecast.arena(node) for node, host in enumerate(hosts)},
        {host: forecast.node_memory(node).total for node, host in enumerate(hosts)},
        # two checkpoints and one being written are three times the states; check_space doubles both numbers
        {"log": expected_log_size(plan), "checkpoints": int(1.5 * states)},
    )


def observed_machine(infos: Sequence[RankInfo], device: str) -> ObservedMachine:
    """Returns the machine that the ranks see; a GPU that `device` requires but is missing is assumed."""
    hosts = list(by_host(infos))
    return ObservedMachine(
        ranks=len(infos),
        nodes=len(hosts),
        devices=max(device not in ("auto", "cpu"), *(each.gpus.count for each in infos)),
        cores=min(max(1, math.floor(min(each.allotted, each.cores[1]))) for each in infos),
        memory=min(each.memory for each in infos),
        device_memory=None,
        shared=min(each.shared[0] for each in infos),
        kind=infos[0].gpus.kind,
        node_of_rank=tuple(hosts.index(each.host) for each in infos),
    )


def process_memory(rollup: Path = Path("/proc/self/smaps_rollup")) -> tuple[int, int]:
    """Returns the private and shared bytes of this process, as an estimate for any rank."""
    try:
        rows = [line.split() for line in rollup.read_text().splitlines()]
        kinds = {row[0]: 1024 * int(row[1]) for row in rows if len(row) == 3}
        return kinds["Anonymous:"], kinds["Rss:"] - kinds["Anonymous:"]
    except (OSError, ValueError, KeyError):
        return 150 * 2**20, 150 * 2**20
