"""How the cost of a run grows with its clients, of which the same number takes part in every round.

The costs of the largest run are predicted from the smaller ones before it begins.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from rich.table import Table

from hpcfl.bench.growth_model import GROWS_WITH, Cost, Line, Size, fit, median_cost, predict
from hpcfl.bench.job import on_ranks, with_settings
from hpcfl.bench.peers.measurement import measure
from hpcfl.bench.peers.table import spread
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
    """Prints the model of the smaller runs and its prediction, then the costs by number of clients."""
    numbers = sorted(set(clients))
    if len(numbers) < 2:
        raise BadInput("--clients: give it at least twice, with different numbers")
    if rounds < FIRST + 3:
        raise BadInput(f"--rounds {rounds}: must be at least {FIRST + 3}")
    sizes = [Size(n, min(participants, n), rounds) for n in numbers]
    options = {size: _settings(size, evaluated, settings) for size in sizes}
    for each in options.values():
        load_config(None, each)
    *smaller, largest = sizes
    costs: dict[Size, list[Cost]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "run.h5")
        for _, size in product(range(repeats), smaller):
            costs[size].append(_run(ranks, out, options[size], size))
        print_header(participants, evaluated, ranks, rounds, repeats)
        medians = {size: median_cost(costs[size]) for size in smaller}
        predicted = None
        if len(smaller) > 1:
            lines = fit(medians)
            predicted = predict(lines, largest)
            print_model(lines, largest, predicted)
        same = [size for size in smaller if size.participants == largest.participants]
        pairs = []
        for _ in range(repeats):
            beside = [_run(ranks, out, options[size], size) for size in same[:1]]
            costs[largest].append(_run(ranks, out, options[largest], largest))
            pairs += [(costs[largest][-1], each) for each in beside]
    print_costs(medians | {largest: median_cost(costs[largest])}, predicted)
    if same:
        print_pairs(largest, same[0], pairs)
    return 0


def _settings(size: Size, evaluated: int, settings: Sequence[str]) -> list[str]:
    return [
        *SMALL_NETWORKS,
        f"data.samples_per_class={max(1, size.clients * SAMPLES // CLASSES)}",
        f"federation.clients={size.clients}",
        f"federation.participation={size.participants}",
        f"federation.rounds={size.rounds}",
        f"log.evaluate_clients={min(evaluated, size.clients)}",
        *settings,
    ]


def _run(ranks: int, out: Path, settings: Sequence[str], size: Size) -> Cost:
    """Runs once, and removes what the run wrote."""
    command = on_ranks(ranks, "train", "--out", out, *with_settings(settings))
    measured = measure(command, out.parent, size.rounds)
    if measured.problem:
        raise RunFailed(measured.problem)
    log, kept = read_log(out), checkpoint_directory(out)
    seconds, cpu_seconds = (
        float(np.median(log[f"/round/{name}"][FIRST:-1])) for name in ("seconds", "cpu_seconds")
    )
    saved = list(kept.iterdir()) if kept.exists() else []
    written = out.stat().st_size, sum(path.stat().st_size for path in saved)
    for path in (out, *saved):
        path.unlink()
    return Cost(seconds, cpu_seconds, measured.peak_bytes, *written, measured.start_seconds)


def print_header(participants: int, evaluated: int, ranks: int, rounds: int, repeats: int) -> None:
    """Prints what is measured, and the load of the machine."""
    load = "/".join(f"{each:.1f}" for each in os.getloadavg())
    console().print(
        f"at most {participants} participants a round, at most {plural(evaluated, 'client')} evaluated; "
        f"{plural(ranks, 'rank')}, {plural(rounds, 'round')}, {plural(repeats, 'repeat')}; load {load}"
    )


def print_model(lines: Mapping[str, Line], largest: Size, predicted: Cost) -> None:
    """Prints the line of each cost, and the prediction for the largest run, which has not begun yet."""
    table = Table("model", "fixed", "+ each", "×", f"{largest.clients} clients", box=None, pad_edge=False)
    for name, line in lines.items():
        label = {"seconds": "round", "cpu_seconds": "round, CPU"}.get(name, HEADS[name])
        written = [_word(name, value) for value in (line.fixed, line.each, getattr(predicted, name))]
        table.add_row(label, *written[:2], GROWS_WITH[name], written[2])
    console().print(table)
    console().print(f"now the run of {plural(largest.clients, 'client')} begins", "", sep="\n")


def print_costs(costs: Mapping[Size, Cost], predicted: Cost | None) -> None:
    """Prints a row for each number of clients, then what was predicted of the last."""
    largest = list(costs)[-1]
    table = Table("clients", box=None, pad_edge=False)
    for head in HEADS.values():
        table.add_column(head, justify="right")
    for size, cost in costs.items():
        table.add_row(str(size.clients), *_words(cost, size))
    if predicted:
        table.add_row(f"{largest.clients}, predicted", *_words(predicted, largest))
        ratios = (getattr(costs[largest], name) / getattr(predicted, name) for name in HEADS)
        table.add_row("measured ÷ predicted", *(f"{ratio:.2f}" for ratio in ratios))
    console().print(table)


def print_pairs(largest: Size, other: Size, pairs: Sequence[tuple[Cost, Cost]]) -> None:
    """Prints the ratio of runs of two sizes that took turns."""
    seconds = spread([mine.seconds / each.seconds for mine, each in pairs])
    cpu_seconds = spread([mine.cpu_seconds / each.cpu_seconds for mine, each in pairs])
    console().print(
        f"a round of {largest.clients} ÷ of {other.clients} clients, both with "
        f"{plural(other.participants, 'participant')}, in turn: {seconds}, CPU {cpu_seconds}"
    )


def _words(cost: Cost, size: Size) -> list[str]:
    """Returns the costs as text; those of a round by participant."""
    shares = dict.fromkeys(("seconds", "cpu_seconds"), size.participants)
    return [_word(name, getattr(cost, name) / shares.get(name, 1)) for name in HEADS]


def _word(name: str, value: float) -> str:
    """Returns a cost as text."""
    if name in ("seconds", "cpu_seconds"):
        return f"{1000 * value:.2f}"
    if name == "memory":
        return format_memory(value)
    if name == "start":
        return f"{value:.4f} s" if abs(value) < 0.1 else f"{value:.1f} s"
    return format_bytes(value)
