"""`hpcfl study plan`: what the runs of a study cost, without running them or having their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcfl.config.identity import identity_but_for_seeds
from hpcfl.config.schema import Config
from hpcfl.data.stand_in import dataset_or_stand_in
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.models.costs import costs
from hpcfl.plan.forecast import Forecast
from hpcfl.plan.machine import Machine, machine_like_here
from hpcfl.study.study_file import read_study
from hpcfl.utils.formatting import format_duration, plural, print_line

CORE_SPEED, GPU_SPEED = 50.0, 1000.0
"""GFLOP/s of a core, about as measured (docs/papers.md), and of a GPU, assumed."""


@dataclass(frozen=True)
class Work:
    """What a run needs."""

    flops: float
    seconds: float


def print_study_plan(
    path: str, scale: str, settings: Sequence[str], ranks: int, devices: int, speed: float | None
) -> None:
    """Prints FLOPs and estimated time of a study's runs, by method and in total."""
    study = read_study(path, scale, settings)
    gflops = speed or (GPU_SPEED if devices else CORE_SPEED)
    machine = machine_like_here(ranks, 1, devices, ranks, None, None)
    works: dict[str, Work] = {}
    by_method: dict[str, list[Work]] = {}
    for cell in study.cells:
        if cell.config is None:
            raise BadInput(f"{cell.name}: {cell.problem}")
        key = identity_but_for_seeds(cell.config)
        if key not in works:
            works[key] = work_of(cell.config, machine, gflops)
        by_method.setdefault(cell.config.method.name, []).append(works[key])
    for name, found in by_method.items():
        print_line(f"{name}: {_words(found)}")
    everything = [work for found in by_method.values() for work in found]
    where = plural(devices, "GPU") if devices else f"{plural(ranks, 'rank')}, each on its own core"
    print_line(f"{study.title}: {_words(everything)} on {where}, at {gflops:g} GFLOP/s each")
    print_line("Only the clients' training and evaluation; not the server's work, messages and start-up.")


def work_of(config: Config, machine: Machine, gflops: float) -> Work:
    """Returns what a run needs if each worker, or each GPU, does so many GFLOP/s."""
    plan = plan_run(config, dataset_or_stand_in(config.data))
    batches = config.train.batch_size, config.runtime.inference_batch
    forecast = Forecast(
        plan,
        costs(plan.architectures, plan.data.shape, *plan.dims, *batches, plan.data.input_type),
        machine,
        (0, 0),
    )
    train, evaluate = forecast.flops
    at_once = machine.devices or max(1, machine.ranks - 1)
    length = forecast.schedule(forecast.work_M)[0] * forecast.passes + evaluate / at_once
    rounds = config.federation.rounds
    return Work(rounds * (train + evaluate), rounds * length / (1e9 * gflops))


def _words(works: Sequence[Work]) -> str:
    """Returns the number, the FLOPs and the time of runs."""
    pflop = sum(work.flops for work in works) / 1e15
    seconds = sum(work.seconds for work in works)
    return f"{plural(len(works), 'run')}, {pflop:.3g} PFLOP, about {format_duration(seconds)}"
