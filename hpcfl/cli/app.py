"""The commands, thin: torch and MPI are imported only by the command that needs them."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from hpcfl import __version__
from hpcfl.cli.logs import export, watch
from hpcfl.cli.study import study
from hpcfl.comm.launcher import SETTLE, is_first_process
from hpcfl.errors import BadInput


class Commands(click.Group):
    """Turns bad input into one sentence and exit code 2; under a launcher one rank speaks."""

    def main(self, *arguments: Any, **more: Any) -> Any:
        _mend_streams()
        if is_first_process():
            return super().main(*arguments, **more)
        try:
            sys.exit(super().main(*arguments, **(more | {"standalone_mode": False})))
        except click.ClickException as error:
            time.sleep(SETTLE)
            sys.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BadInput as error:
            if is_first_process():
                click.echo(f"hpcfl: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            if is_first_process():
                click.echo("hpcfl: interrupted", err=True)
            ctx.exit(130)


def _mend_streams() -> None:
    """Makes output possible where it was closed, and where its encoding lacks a character."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        if hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="replace")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Prototype-based heterogeneous federated learning over MPI.

    Start with `mpirun -n 21 hpcfl train`: 20 clients on the built-in spiral, nothing to download.
    """


@main.command()
@click.argument("config", required=False)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option("--out", metavar="RUN.h5", help="The log; without, a name made from the configuration.")
@click.option("--fresh", is_flag=True, help="If the log exists, keep it under another name and run again.")
def train(config: str | None, settings: tuple[str, ...], out: str | None, fresh: bool) -> None:
    """Run a federation, alone or under mpirun or srun.

    CONFIG is a TOML file; without one the quick start runs. Exit codes: 0 done, 1 failed, 2 bad input,
    75 stopped early: the same command goes on.
    """
    from hpcfl.engine.launch import launch_train

    sys.exit(launch_train(config, settings, out, fresh))


@main.command()
@click.argument("runs", metavar="RUN.h5...", nargs=-1, required=True)
def show(runs: tuple[str, ...]) -> None:
    """Show a run at a glance, several side by side, or a study by its directory."""
    from hpcfl.report.runs import print_runs
    from hpcfl.study.results_table import is_study, print_study

    if len(runs) == 1 and is_study(runs[0]):
        print_study(runs[0])
    else:
        print_runs(runs)


main.add_command(watch)
main.add_command(export)
main.add_command(study)


@main.command()
@click.argument("config", required=False)
@click.option("-n", "ranks", required=True, type=click.IntRange(1), help="Ranks, with the server.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1))
@click.option("--devices", default=0, show_default=True, type=click.IntRange(0), help="GPUs of each node.")
@click.option("--cores", type=click.IntRange(1), help="Cores of each node. [default: as here]")
@click.option("--memory", type=float, help="GiB of each node. [default: as here]")
@click.option("--device-memory", type=float, help="GiB of each GPU.")
@click.option("--calibrate", is_flag=True, help="Try a few training steps of each architecture here.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(config: str | None, settings: tuple[str, ...], **machine: Any) -> None:
    """Show what a run needs, and who trains where, without running it."""
    from hpcfl.plan.command import print_plan

    print_plan(config, settings, **machine)


@main.command()
@click.argument("config", required=False)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option("--out", metavar="RUN.h5", help="The log that would be written.")
def doctor(config: str | None, settings: tuple[str, ...], out: str | None) -> None:
    """Check the machine for a run, started the way the run will be: alone, by mpirun or by srun.

    One line for each check: ok, warning or problem, what was seen, and what to do. Nothing is trained or left
    behind. Exit codes: 0 no problem, 1 a problem, 2 bad input.
    """
    from hpcfl.doctor.command import run_doctor

    sys.exit(run_doctor(config, settings, out))


@main.command()
@click.option("--combinations", is_flag=True, help="Which parts of methods go together, as a table.")
def catalog(combinations: bool) -> None:
    """List methods, models, groups and datasets with their papers."""
    if combinations:
        from hpcfl.methods.combinations import table

        click.echo(table())
        return
    from hpcfl.cli.catalog import print_catalogue

    print_catalogue()


@main.group()
def data() -> None:
    """Prepare datasets once, where there is internet, and look at how they are dealt."""


ROOT = click.option(
    "--root", metavar="DIR", help="Where prepared datasets lie. [default: $HPCFL_DATA, else data]"
)


@data.command("list")
@ROOT
def list_(root: str | None) -> None:
    """List what can be prepared, and what is."""
    from hpcfl.cli.datasets import print_list

    print_list(root)


@data.command()
@click.argument("name")
@ROOT
@click.option("--source", metavar="PATH", help="Files fetched before, or your own data; then no download.")
@click.option("--size", type=click.IntRange(1, 4096), help="Bring all images to SIZE × SIZE.")
@click.option("--fresh", is_flag=True, help="Make it again if it is there.")
def prepare(name: str, source: str | None, root: str | None, size: int | None, fresh: bool) -> None:
    """Make DIR/NAME.h5 from a known dataset or from your own data.

    NAME is one that `hpcfl data list` shows, or a new one for what --source gives: an .npz (x: uint8 images,
    y: labels, perhaps writer), a folder with one directory of images per class, or a dataset of torchvision,
    torchvision:CLASS[:DIRECTORY].
    """
    from hpcfl.cli.datasets import print_prepared

    print_prepared(name, source, root, size, fresh)


@data.command("show")
@click.argument("name")
@ROOT
@click.option("--config", metavar="C.toml", help="Whose partition is shown; without, the quick start's.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option(
    "--out",
    metavar="FILE",
    multiple=True,
    help="Picture (.png, .pdf, .svg), counts (.csv) or the split itself (.npz); repeatable. "
    "[default: NAME-PARTITION.png]",
)
def show_data(
    name: str, root: str | None, config: str | None, settings: tuple[str, ...], out: tuple[str, ...]
) -> None:
    """Show which client has how many samples of which class."""
    from hpcfl.cli.datasets import print_partition

    print_partition(name, root, config, settings, out)


@main.group()
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
