"""What a run prints when it starts and when it fails."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hpcfl.engine.progress import ProgressLines
from hpcfl.runtime.exit_handling import STOPPED, print_error
from hpcfl.utils.formatting import plural

if TYPE_CHECKING:
    from hpcfl.engine.context import RunContext
    from hpcfl.engine.server import Server
    from hpcfl.log.reader import Run
    from hpcfl.runtime.placement import Placement


def exit_out_of_time(server: Server) -> None:
    """Ends this job at once: its time is over before the round is. Called by a timer, so without MPI."""
    done, rounds = server.log.rounds_done, server.plan.config.federation.rounds
    print_error(f"hpcfl: no time left to end round {done + 1} of {rounds}; the same command continues")
    os._exit(STOPPED)


def print_startup(
    display: ProgressLines, ctx: RunContext, placement: Placement, old: Run | None, backup: Path | None
) -> None:
    """Prints what is about to run; `backup` is the new name of an old log."""
    plan, rounds = ctx.plan, ctx.plan.config.federation.rounds
    display.print(_headline(ctx, placement))
    if ctx.first_round:
        display.print(f"hpcfl: continues after round {ctx.first_round} of {rounds}")
        if old and (before := str(old.attributes.get("device", "")).partition(":")[0]) != ctx.device.type:
            display.print(
                f"hpcfl: rounds so far were computed on {before}, now on {ctx.device.type}: "
                "the last bits differ from those of a run on either alone"
            )
    elif old:
        aside = f"; the old log is kept as {backup.name}" if backup else ""
        display.print(f"hpcfl: no checkpoint can be used: the run starts again{aside}")
    if placement.float64_remark:
        display.print(f"hpcfl: {placement.float64_remark}")
    for remark in plan.spec.remarks(plan):
        display.print(f"hpcfl: {remark}")
    workers, per_round = len(ctx.comm.workers), plan.config.federation.per_round
    if workers > per_round:
        idle = plural(workers - per_round, "rank has", "ranks have")
        display.print(f"hpcfl: {idle} no client: {plural(per_round, 'client')} per round, {workers} workers")
    if plan.unowned:
        display.print(f"hpcfl: classes that belong to no client: {', '.join(map(str, plan.unowned))}")


def _headline(ctx: RunContext, placement: Placement) -> str:
    plan, config, comm = ctx.plan, ctx.plan.config, ctx.comm
    nets = Counter(client.architecture for client in plan.clients)
    crowded = (
        ", oversubscribed (results do not change)"
        if len(comm.workers) * config.runtime.threads > placement.cores
        else ""
    )
    return (
        f"hpcfl: {config.method.name} on {config.data.name}, {plural(len(plan.clients), 'client')} "
        f"({', '.join(f'{n} {name}' for name, n in nets.items())}), {config.federation.per_round} per round; "
        f"{plural(comm.size, 'rank')} on {plural(placement.nodes, 'node')}, {plural(placement.cores, 'core')}"
        f"{crowded}; {ctx.device}, {placement.placement}, {placement.arena.kind} arena"
        f"{f' ({placement.fallback_reason})' if placement.fallback_reason else ''}"
    )


def failure_reason(server: Server) -> str:
    done, rounds = server.log.rounds_done, server.plan.config.federation.rounds
    if server.status == "diverged" and not server.diverged_M.all():
        return f"the server's training diverged in round {done} of {rounds}; lower train.lr"
    if server.status == "diverged":
        return (
            f"every client diverged (loss or upload not finite) after round {done} of {rounds}; "
            "lower train.lr, or the weight of a loss term"
        )
    return f"stopped by a signal after round {done} of {rounds}"
