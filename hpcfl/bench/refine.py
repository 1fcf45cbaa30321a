"""Speed and energy of prototype alignment: difference tensor, Gram matrix, simplex."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Literal

import torch
from rich.table import Table
from torch import Tensor

from hpcfl.config.schema import RuntimeConfig
from hpcfl.errors import BadInput
from hpcfl.methods.parts import SolverOptions
from hpcfl.methods.refine.base import RefineStats
from hpcfl.methods.refine.simplex import minimise_energy, nearest_simplex
from hpcfl.methods.refine.thomson import thomson
from hpcfl.methods.sphere import EPS, distances, energy, normalise, simplex_bound
from hpcfl.runtime.devices import set_up_torch
from hpcfl.utils.formatting import console

REPEATS = 5
MAX_ELEMENTS = 80_000_000
"""Largest difference tensor in float64 numbers; up to three are in memory at a time: 1.9 GB."""


def solve_by_differences(unit_PD: Tensor, iterations: int) -> Tensor:
    """Returns the result of ProtoNorm's Eq. (11)-(14) written down directly: a P×P×D tensor per iteration."""
    options, c_PD, v_PD = SolverOptions(), unit_PD, torch.zeros_like(unit_PD)
    for n in range(iterations):
        gap_PPD = c_PD[:, None] - c_PD[None]
        force_PD = (gap_PPD / gap_PPD.square().sum(2, keepdim=True).clamp_min(EPS)).sum(1)
        lr = options.solver_lr * options.solver_decay ** (n // options.solver_decay_every)
        v_PD = options.solver_momentum * v_PD + lr * force_PD
        c_PD = normalise(c_PD + v_PD)
    return c_PD


def bench_refine(classes: int, features: int, iterations: int) -> int:
    """Prints a table, in float64 on one thread; the first two solvers do the same number of iterations."""
    if classes**2 * features > MAX_ELEMENTS:
        raise BadInput(
            f"--classes {classes} --features {features}: the difference tensor would take too much memory"
        )
    set_up_torch(RuntimeConfig(), 0, on="cpu")
    generator = torch.Generator().manual_seed(0)
    random_PD = torch.randn(classes, features, dtype=torch.float64, generator=generator)
    start_PD = normalise(random_PD.abs() + 0.05)
    reference = RefineStats()
    thomson(start_PD, SolverOptions(iterations=iterations), reference)

    def solve(stats: RefineStats, stopping: Literal["tangent", "whole"] = "tangent") -> Tensor:
        return thomson(start_PD, SolverOptions(iterations=iterations, stopping=stopping), stats)

    def solve_exactly(stats: RefineStats) -> Tensor:
        if classes <= features + 1:
            return nearest_simplex(start_PD)
        return minimise_energy(solve(stats), iterations, stats)

    solvers: dict[str, Callable[[RefineStats], Tensor]] = {
        "difference tensor": lambda stats: solve_by_differences(start_PD, reference.iterations),
        "Gram matrix": solve,
        "Gram matrix, stopping = whole": lambda stats: solve(stats, "whole"),
        "simplex" if classes <= features + 1 else "simplex (L-BFGS)": solve_exactly,
    }
    table = Table("way", box=None, pad_edge=False)
    for head in ("iterations", "seconds", "times as fast", "energy", "above the bound", "largest cosine"):
        table.add_column(head, justify="right")
    first = 0.0
    for name, solver in solvers.items():
        result_PD, seconds, stats = _median_time(solver, REPEATS if first else 1)
        first = first or seconds
        table.add_row(
            name,
            str(stats.iterations or (reference.iterations if name == "difference tensor" else "–")),
            f"{seconds:.4f}",
            f"{first / seconds:.1f}",
            f"{energy(result_PD).item():.3f}",
            f"{energy(result_PD).item() - simplex_bound(classes):.2e}",
            f"{1 - distances(result_PD).min().item() ** 2 / 2:+.4f}",
        )
    console().print(
        f"{classes} classes, {features} features, float64, one thread; the first once, the others "
        f"the median of {REPEATS}"
    )
    console().print(table)
    return 0


def _median_time(solver: Callable[[RefineStats], Tensor], repeats: int) -> tuple[Tensor, float, RefineStats]:
    seconds = []
    for _ in range(repeats):
        stats, start = RefineStats(), time.perf_counter()
        result_PD = solver(stats)
        seconds.append(time.perf_counter() - start)
    return result_PD, median(seconds), stats
