"""Speed and energy of prototype alignment: difference tensor, Gram matrix, simplex."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from rich.table import Table
from torch import Tensor

from hpcfl.config.schema import RuntimeConfig
from hpcfl.errors import BadInput
from hpcfl.methods.refine.base import RefineStats
from hpcfl.methods.refine.simplex import nearest_simplex, relax
from hpcfl.methods.refine.thomson import DECAY, EVERY, LR, MOMENTUM, thomson
from hpcfl.methods.sphere import EPS, distances, energy, normalise, simplex_bound
from hpcfl.runtime.devices import set_up_torch
from hpcfl.utils.formatting import console

REPEATS = 5
LARGEST = 80_000_000
"""Numbers in a difference tensor, in float64; up to three of them are in memory at a time: 1.9 GB."""


def by_differences(unit_PD: Tensor, iterations: int) -> Tensor:
    """Returns the result of ProtoNorm's Eq. (11)-(14) written down directly: a P×P×D tensor per iteration."""
    c_PD, v_PD = unit_PD, torch.zeros_like(unit_PD)
    for n in range(iterations):
        gap_PPD = c_PD[:, None] - c_PD[None]
        force_PD = (gap_PPD / gap_PPD.square().sum(2, keepdim=True).clamp_min(EPS)).sum(1)
        v_PD = MOMENTUM * v_PD + LR * DECAY ** (n // EVERY) * force_PD
        c_PD = normalise(c_PD + v_PD)
    return c_PD


def bench_refine(classes: int, features: int, iterations: int) -> int:
    """Prints a table of one run, in float64 on one thread; both solvers take equally many iterations."""
    if classes**2 * features > LARGEST:
        raise BadInput(
            f"--classes {classes} --features {features}: the difference tensor would take too much memory"
        )
    set_up_torch(RuntimeConfig(), 0, on="cpu")
    draw = torch.Generator().manual_seed(0)
    start_PD = normalise(torch.randn(classes, features, dtype=torch.float64, generator=draw).abs() + 0.05)
    taken = RefineStats()
    thomson(start_PD, iterations, taken)

    def solve(stats: RefineStats, stopping: str = "tangent") -> Tensor:
        return thomson(start_PD, iterations, stats, stopping=stopping)

    def exactly(stats: RefineStats) -> Tensor:
        if classes <= features + 1:
            return nearest_simplex(start_PD)
        return relax(solve(stats), iterations, stats)

    ways: dict[str, Callable[[RefineStats], Tensor]] = {
        "difference tensor": lambda stats: by_differences(start_PD, taken.iterations),
        "Gram matrix": solve,
        "Gram matrix, stopping = whole": lambda stats: solve(stats, "whole"),
        "simplex" if classes <= features + 1 else "simplex (L-BFGS)": exactly,
    }
    table = Table("way", box=None, pad_edge=False)
    for head in ("iterations", "seconds", "times as fast", "energy", "above the bound", "largest cosine"):
        table.add_column(head, justify="right")
    slowest = 0.0
    for name, way in ways.items():
        placed_PD, seconds, stats = _timed(way, REPEATS if slowest else 1)
        slowest = slowest or seconds
        table.add_row(
            name,
            str(stats.iterations or (taken.iterations if name == "difference tensor" else "–")),
            f"{seconds:.4f}",
            f"{slowest / seconds:.1f}",
            f"{energy(placed_PD).item():.3f}",
            f"{energy(placed_PD).item() - simplex_bound(classes):.2e}",
            f"{1 - distances(placed_PD).min().item() ** 2 / 2:+.4f}",
        )
    console().print(
        f"{classes} classes, {features} features, float64, one thread; the first once, the others "
        f"the median of {REPEATS}"
    )
    console().print(table)
    return 0


def _timed(way: Callable[[RefineStats], Tensor], repeats: int) -> tuple[Tensor, float, RefineStats]:
    took = []
    for _ in range(repeats):
        stats, began = RefineStats(), time.perf_counter()
        placed_PD = way(stats)
        took.append(time.perf_counter() - began)
    return placed_PD, median(took), stats
