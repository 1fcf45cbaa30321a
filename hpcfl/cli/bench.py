"""The commands that measure speed: `hpcfl bench`."""

from __future__ import annotations

import sys
from typing import Any

import click


@click.group()
def bench() -> None:
    """Measure speed on this machine."""


@bench.command()
@click.argument("config", required=False)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1))
@click.option("--samples", default=320, show_default=True, type=click.IntRange(2), help="Of each client.")
@click.option("--each", is_flag=True, help="Also with one optimisation after the other.")
@click.option("--json", "out", metavar="FILE", help="Keep all figures.")
@click.option("--baseline", metavar="OLD.json", help="Compare with figures that were kept.")
def step(config: str | None, settings: tuple[str, ...], **options: Any) -> None:
    """Local training of each architecture against the plain loop and the machine's limits.

    Alone or under mpirun, where all ranks work at the same time.
    """
    from hpcfl.bench.step import bench_step

    sys.exit(bench_step(config, settings, **options))


@bench.command()
@click.option("--rounds", default=50, show_default=True, type=click.IntRange(2))
def exchange(rounds: int) -> None:
    """Cost of empty rounds and of taking a client; run it under mpirun."""
    from hpcfl.bench.exchange import bench_exchange

    sys.exit(bench_exchange(rounds))


@bench.command()
@click.option("--classes", default=200, show_default=True, type=click.IntRange(2, 10_000))
@click.option("--features", default=512, show_default=True, type=click.IntRange(2, 65_536))
@click.option("--iterations", default=500, show_default=True, type=click.IntRange(1))
def refine(**sizes: int) -> None:
    """Prototype alignment: by difference tensor, by Gram matrix, exactly."""
    from hpcfl.bench.refine import bench_refine

    sys.exit(bench_refine(**sizes))
