"""How the cost of a run grows with its clients, of which the same number takes part in every round.

All quantities of the largest run are also predicted from the smaller ones, by a straight line.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from hpcfl.bench.job import on_ranks, with_settings
from hpcfl.bench.peers.measurement import measure
from hpcfl.checkpoint.store import checkpoint_directory
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput, RunFailed
from hpcfl.log.reader import read_log
from hpcfl.utils.formatting import console, format_bytes, format_memory, plural

SAMPLES = 80
"""Of a client; three quarters are for training."""
CLASSES = 6
"""Of the spiral."""
SMALL_NETWORKS = [
    *("partition.name=iid", "partition.min_samples=2", "models.group=mlp4", "models.features=32"),
    *("train.epochs=5", "train.batch_size=10", "log.prototypes_every=1000"),
    *("runtime.checkpoint_minutes=0",),
]
FIRST = 2
"""Rounds that are not counted; neither is the last."""


@dataclass(frozen=True)
class Cost:
    """What a run with a number of clients costs."""

    seconds: float
    """Of a round, per participant; CPU seconds of all ranks likewise."""
    cpu_seconds: float
    memory: float
    """Bytes of all processes together, at most; log and checkpoints: bytes on disk at the end."""
    log: float
    checkpoint: float
    start: float
    """Seconds from the start of mpirun to the first round."""


HEADS = {
    "seconds": "ms per participant",
    "cpu_seconds": "CPU ms per participant",
    "memory": "memory",
    "log": "log",
    "checkpoint": "checkpoints",
    "start": "start-up",
}


def bench_growth(
    clients: Sequence[int],
    participants: int,
    evaluated: int,
    ranks: int,
    rounds: int,
    repeats: int,
    settings: tuple[str, ...],
) -> int:
    """Prints the costs by number of clients, medians over repeats, and the prediction for the largest."""
    numbers = sorted(set(clients))
    if len(numbers) < 2:
        raise BadInput("--clients: give it at least twice, with different numbers")
    if rounds < FIRST + 3:
        raise BadInput(f"--rounds {rounds}: must be at least {FIRST + 3}")
    options = {n: _settings(n, participants, evaluated, rounds, settings) for n in numbers}
    for each in options.values():
        load_config(None, each)
    costs: dict[int, list[Cost]] = {n: [] for n in numbers}
    with tempfile.TemporaryDirectory() as directory:
        for repeat in range(repeats):
            for n in numbers:
                out = Path(directory, f"{n}-{repeat}.h5")
                costs[n].append(_run(ranks, out, options[n], rounds, min(participants, n)))
    load = "/".join(f"{each:.1f}" for each in os.getloadavg())
    console().print(
        f"at most {participants} participants a round, at most {plural(evaluated, 'client')} evaluated; "
        f"{plural(ranks, 'rank')}, {plural(rounds, 'round')}, {plural(repeats, 'repeat')}; load {load}"
    )
    print_costs({n: median_cost(each) for n, each in costs.items()})
    return 0


def _settings(
    clients: int, participants: int, evaluated: int, rounds: int, settings: Sequence[str]
) -> list[str]:
    return [
        *SMALL_NETWORKS,
        f"data.samples_per_class={max(1, clients * SAMPLES // CLASSES)}",
        f"federation.clients={clients}",
        f"federation.participation={min(participants, clients)}",
        f"federation.rounds={rounds}",
        f"log.evaluate_clients={min(evaluated, clients)}",
        *settings,
    ]


def _run(ranks: int, out: Path, settings: Sequence[str], rounds: int, participants: int) -> Cost:
    command = on_ranks(ranks, "train", "--out", out, *with_settings(settings))
    measured = measure(command, out.parent, rounds)
    if measured.problem:
        raise RunFailed(measured.problem)
    log, kept = read_log(out), checkpoint_directory(out)
    seconds, cpu_seconds = (
        float(np.median(log[f"/round/{name}"][FIRST:-1])) / participants
        for name in ("seconds", "cpu_seconds")
    )
    saved = sum(path.stat().st_size for path in kept.iterdir()) if kept.exists() else 0
    size = out.stat().st_size
    return Cost(seconds, cpu_seconds, measured.peak_bytes, size, saved, measured.start_seconds)


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Returns the median of each quantity."""
    return Cost(**{name: float(np.median([getattr(cost, name) for cost in costs])) for name in HEADS})


def predict(costs: Mapping[int, Cost], clients: int) -> Cost:
    """Returns the costs for another number of clients, by the straight lines through known ones."""
    n = [float(number) for number in costs]
    values = {name: [getattr(cost, name) for cost in costs.values()] for name in HEADS}
    return Cost(**{name: float(np.polyval(np.polyfit(n, y, 1), clients)) for name, y in values.items()})


def print_costs(costs: Mapping[int, Cost]) -> None:
    """Prints a row for each number of clients, then what a line through all but the last says of it."""
    *smaller, largest = costs
    table = Table("clients", box=None, pad_edge=False)
    for head in HEADS.values():
        table.add_column(head, justify="right")
    for n, cost in costs.items():
        table.add_row(str(n), *_words(cost))
    if len(smaller) > 1:
        table.add_row(f"{largest}, predicted", *_words(predict({n: costs[n] for n in smaller}, largest)))
    table.add_row("per client", "", "", *_slopes(costs))
    console().print(table)


def _words(cost: Cost) -> list[str]:
    milliseconds = [f"{1000 * value:.2f}" for value in (cost.seconds, cost.cpu_seconds)]
    files = [format_bytes(value) for value in (cost.log, cost.checkpoint)]
    return [*milliseconds, format_memory(cost.memory), *files, f"{cost.start:.1f} s"]


def _slopes(costs: Mapping[int, Cost]) -> list[str]:
    """Returns what a client adds, from the smallest to the largest run."""
    first, *_, last = costs
    by_name = {
        name: (value - asdict(costs[first])[name]) / (last - first)
        for name, value in asdict(costs[last]).items()
    }
    files = [format_bytes(by_name[name]) for name in ("log", "checkpoint")]
    return [format_memory(by_name["memory"]), *files, f"{1000 * by_name['start']:.2f} ms"]
