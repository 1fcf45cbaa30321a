"""The command group `hpcfl` and its command `train`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from hpcfl import __version__
from hpcfl.cli.bench import bench
from hpcfl.cli.bench_scale import growth, peers
from hpcfl.cli.catalog import catalog
from hpcfl.cli.data import data
from hpcfl.cli.jobs import jobs
from hpcfl.cli.plan import doctor, plan
from hpcfl.cli.runs import clock, diff, export, report, show, watch
from hpcfl.cli.study import study
from hpcfl.comm.launcher import OUTPUT_DELAY, is_first_process
from hpcfl.errors import BadInput


class Commands(click.Group):
    """Command group that reports bad input as one line with exit code 2, on the first process only."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        _repair_streams()
        if is_first_process():
            return super().main(*arguments, **options)
        try:
            sys.exit(super().main(*arguments, **(options | {"standalone_mode": False})))
        except click.ClickException as error:
            time.sleep(OUTPUT_DELAY)
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


def _repair_streams() -> None:
    """Replaces closed output streams and lets characters that cannot be encoded print as `?`."""
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

    CONFIG is a TOML file or a name that `hpcfl catalog` lists; without one the quick start runs. Exit codes:
    0 done, 1 failed, 2 bad input, 75 stopped early: the same command goes on.
    """
    from hpcfl.engine.launch import launch_train

    sys.exit(launch_train(config, settings, out, fresh))


for command in (show, diff, watch, clock, export, report, study, jobs, plan, doctor, catalog, data, bench):
    main.add_command(command)
bench.add_command(peers)
bench.add_command(growth)
