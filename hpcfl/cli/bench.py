"""The commands that measure speed, memory and overheads: `hpcfl bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from hpcfl.errors import BadInput, RunFailed

SETTINGS = click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable."
)


@click.group()
def bench() -> None:
    """Measure speed, memory and overheads on this machine.

    `step` and `exchange` run alone or under mpirun. `ranks`, `checkpoint`, `memory`, `data`, `plan` and
    `study` start their ranks themselves, by the mpirun beside this Python.
    """


def integer(name: str, default: int, least: int = 1, help: str | None = None) -> Callable[..., Any]:
    """Returns an option that takes a whole number."""
    return click.option(name, default=default, show_default=True, type=click.IntRange(least), help=help)


def exit_with(benchmark: Callable[..., int], **options: Any) -> NoReturn:
    """Runs a benchmark and exits with its code; if a run that it started fails, with 1."""
    try:
        code = benchmark(**options)
    except RunFailed as failure:
        click.echo(f"hpcfl: {failure}", err=True)
        code = 1
    sys.exit(code)


@bench.command()
@click.argument("config", required=False)
@SETTINGS
@click.option("--repeats", type=click.IntRange(1), help="[default: 5; with --ablate 12]")
@click.option("--samples", type=click.IntRange(2), help="Of each client. [default: 320; with --ablate 160]")
@click.option("--each", is_flag=True, help="Also with one optimisation after the other.")
@click.option("--json", "out", metavar="FILE", help="Keep all figures.")
@click.option("--baseline", metavar="OLD.json", help="Compare with figures that were kept.")
@click.option("--ablate", is_flag=True, help="Instead: seconds with all parts of the step ÷ without one.")
@click.option("--part", "parts", metavar="NAME", multiple=True, help="With --ablate: this one; repeatable.")
def step(
    config: str | None,
    settings: tuple[str, ...],
    repeats: int | None,
    samples: int | None,
    ablate: bool,
    parts: tuple[str, ...],
    **options: Any,
) -> None:
    """Local training of each architecture against the plain loop and the machine's limits.

    Alone or under mpirun, where all ranks work at the same time.
    """
    from hpcfl.bench.step import bench_ablation, bench_step

    if ablate and any(options.values()):
        raise BadInput("--ablate: goes with neither --each nor --json nor --baseline")
    if parts and not ablate:
        raise BadInput("--part: only with --ablate")
    if ablate:
        sys.exit(bench_ablation(config, settings, repeats or 12, samples or 160, parts))
    sys.exit(bench_step(config, settings, repeats or 5, samples or 320, **options))


@bench.command()
@click.argument("config", required=False)
@SETTINGS
@integer("--repeats", 9)
@integer("--samples", 160, help="Of each client.")
def joint(config: str | None, settings: tuple[str, ...], repeats: int, samples: int) -> None:
    """Seconds of fml's or fedkd's joint step ÷ those of both networks' own steps.

    Where gradients are clipped, their own steps are torch's, without clipping.
    """
    from hpcfl.bench.joint import bench_joint

    exit_with(bench_joint, path=config, settings=settings, repeats=repeats, samples=samples)


@bench.command()
@click.argument("config", required=False)
@SETTINGS
@click.option("--method", "methods", metavar="NAME", multiple=True, help="Repeatable. [default: all]")
def device(config: str | None, settings: tuple[str, ...], methods: tuple[str, ...]) -> None:
    """Kernels, host syncs and bytes copied on an accelerator.

    Of a training step, a client, an evaluation, and the server in a round; counted on a stand-in device.
    """
    from hpcfl.bench.device import bench_device

    exit_with(bench_device, path=config, settings=settings, methods=methods)


@bench.command()
@click.argument("config", required=False)
@SETTINGS
@integer("--samples", 320, least=2, help="Of each client.")
def profile(config: str | None, settings: tuple[str, ...], samples: int) -> None:
    """Where the seconds of a client's round go, with the share of the GEMM limit."""
    from hpcfl.bench.profile import bench_profile

    exit_with(bench_profile, path=config, settings=settings, samples=samples)


@bench.command()
@click.option("--rounds", default=50, show_default=True, type=click.IntRange(2))
def exchange(rounds: int) -> None:
    """Cost of empty rounds and of taking a client; run it under mpirun."""
    from hpcfl.bench.exchange import bench_exchange

    sys.exit(bench_exchange(rounds))


@bench.command()
@click.option("--classes", type=click.IntRange(2, 10_000), help="Only alignment, in several ways.")
@click.option("--features", default=512, show_default=True, type=click.IntRange(2, 65_536))
@integer("--iterations", 500, help="With --classes.")
@integer("--threads", 1, help="Without --classes.")
def refine(classes: int | None, features: int, iterations: int, threads: int) -> None:
    """The server's refinements for 10 to 1000 classes.

    With --classes: alignment of so many by difference tensor, by Gram matrix, exactly.
    """
    from hpcfl.bench.refine import bench_refine
    from hpcfl.bench.refine_table import bench_refinements

    if classes is None:
        sys.exit(bench_refinements(features, threads))
    sys.exit(bench_refine(classes, features, iterations))


@bench.command()
@integer("--many", 21, help="Ranks.")
@integer("--few", 3, help="Ranks.")
@integer("--repeats", 3)
@SETTINGS
def ranks(**options: Any) -> None:
    """Seconds of a round on many ranks against few.

    Wall and CPU seconds as ratios; the same clients, in turn.
    """
    from hpcfl.bench.ranks import bench_ranks

    exit_with(bench_ranks, **options)


@bench.command()
@integer("--ranks", 3)
@integer("--repeats", 3)
@SETTINGS
def checkpoint(**options: Any) -> None:
    """Cost of a checkpoint.

    Rounds that save are compared with rounds of the same run that do not.
    """
    from hpcfl.bench.checkpoint import bench_checkpoint

    exit_with(bench_checkpoint, **options)


@bench.command()
@integer("--few", 100, help="Clients.")
@integer("--many", 500, help="Clients.")
@integer("--ranks", 3)
def memory(**options: Any) -> None:
    """Memory that an extra client adds.

    To all ranks together, in units of its state; runs with few and with many clients are compared.
    """
    from hpcfl.bench.memory import bench_memory

    exit_with(bench_memory, **options)


@bench.command()
@click.option("--name", default="fmnist", show_default=True, help="A prepared dataset.")
@click.option("--root", metavar="DIR", help="Where it lies. [default: $HPCFL_DATA, else data]")
@integer("--ranks", 21)
def data(**options: Any) -> None:
    """Memory that ranks hold of a prepared dataset.

    Of all ranks together, against the size of its file.
    """
    from hpcfl.bench.data import bench_data

    exit_with(bench_data, **options)


@bench.command()
@click.argument("config", required=False)
@SETTINGS
@integer("--ranks", 3)
@integer("--rounds", 2)
def plan(**options: Any) -> None:
    """Predictions of `hpcfl plan` against a run.

    Peak memory of all ranks together, and seconds of training in a round.
    """
    from hpcfl.bench.plan import bench_plan

    exit_with(bench_plan, **options)


@bench.command()
@integer("--cells", 60, least=7)
@integer("--ranks", 3)
def study(**options: Any) -> None:
    """Seconds that a cell of a study takes beside its rounds.

    Exit code 1: more than a second, or not all cells ran in the same processes.
    """
    from hpcfl.bench.study import bench_study

    exit_with(bench_study, **options)
