"""The commands to use before a run: plan and doctor."""

from __future__ import annotations

import sys
from typing import Any

import click

from hpcfl.errors import BadInput


@click.command()
@click.argument("config", required=False)
@click.option(
    "-n",
    "ranks",
    type=click.IntRange(1),
    help="Ranks, with the server. [default: a worker for each core, as far as clients need them]",
)
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


@click.command()
@click.argument("config", required=False)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option("--out", metavar="RUN.h5", help="The log that would be written.")
@click.option("--device", is_flag=True, help="Instead: try the accelerator of this process by short runs.")
def doctor(config: str | None, settings: tuple[str, ...], out: str | None, device: bool) -> None:
    """Check the machine for a run, started the way the run will be: alone, by mpirun or by srun.

    One line for each check: ok, warning or problem, what was seen, and what to do. Nothing is trained or left
    behind; --device trains for seconds. Exit codes: 0 no problem, 1 a problem, 2 bad input.
    """
    if device:
        from hpcfl.doctor.device_trial import try_device

        if config or out:
            raise BadInput("--device: goes with --set only")
        sys.exit(try_device(settings))
    from hpcfl.doctor.command import run_doctor

    sys.exit(run_doctor(config, settings, out))
