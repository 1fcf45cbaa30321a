"""The commands on studies: `hpcfl study`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click


@click.group()
def study() -> None:
    """Many runs from one file: a grid over any keys, continued where it was left.

    STUDY is a TOML file or a name that `hpcfl catalog` lists.
    """


def _study_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that all commands of a study share."""
    for option in (
        click.option("--out", metavar="DIR", help="Where the cells' logs lie. [default: runs/NAME[-small]]"),
        click.option(
            "--set", "settings", metavar="KEY=VALUE", multiple=True, help="In every cell; repeatable."
        ),
        click.option("--scale", default="full", show_default=True, help="full or small, as the file says."),
        click.argument("path", metavar="STUDY"),
    ):
        command = option(command)
    return command


@study.command("run")
@_study_options
@click.option(
    "--cell", "only", metavar="NAME", multiple=True, help="This cell, or those of a pattern; repeatable."
)
@click.option("--retry", is_flag=True, help="In this start, run cells again that failed or diverged.")
@click.option("--keep", is_flag=True, help="Keep checkpoints of finished cells: more rounds can extend them.")
def run_study(**arguments: Any) -> None:
    """Run the missing cells one after another, alone or under mpirun or srun.

    The same command goes on after a kill. Exit codes: 0 all that this start can run is done, 1 some cells
    failed, diverged or are bad, or study.h5 could not be written, 2 bad input, 75 stopped early.
    """
    from hpcfl.study.run import run_study

    sys.exit(run_study(**arguments))


@study.command()
@_study_options
@click.option("-n", "ranks", type=click.IntRange(1), help="Ranks that a job has, for the time left.")
@click.option("--all", "show_all", is_flag=True, help="Finished cells too.")
def status(**arguments: Any) -> None:
    """Show how far each cell has come, and the time left."""
    from hpcfl.study.status import print_status

    print_status(**arguments)


@study.command()
@_study_options
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds of the new study.")
@click.option("-o", "target", metavar="FILE", required=True, help="The new study: FILE.toml.")
def choose(seeds: str, **arguments: Any) -> None:
    """Choose the options of each method by validation, and write a study of them with more seeds.

    Of the finished cells of STUDY that differ in options of their method alone, the one with the best
    accuracy on validation samples is chosen; hpcfl study run FILE then runs it with every seed.
    """
    from hpcfl.errors import BadInput
    from hpcfl.study.choose import print_choice

    words = seeds.split(",")
    if not all(word.strip().isdecimal() for word in words) or len({*map(int, words)}) < len(words):
        raise BadInput(f"--seeds {seeds}: must be different whole numbers, as 0,1,2")
    print_choice(seeds=[int(word) for word in words], **arguments)


@study.command()
@_study_options
@click.option("-n", "ranks", default=21, show_default=True, type=click.IntRange(1), help="Ranks of a run.")
@click.option("--devices", default=0, show_default=True, type=click.IntRange(0), help="GPUs of a run.")
@click.option(
    "--speed",
    metavar="GFLOPS",
    type=click.FloatRange(0, min_open=True),
    help="GFLOP/s that a core does, or a GPU. [default: 50 of a core, 1000 of a GPU]",
)
def plan(**arguments: Any) -> None:
    """Estimate what the runs cost, from FLOPs, without running them; a paper's data need not be there.

    --out has no effect.
    """
    from hpcfl.study.plan import print_study_plan

    del arguments["out"]
    print_study_plan(**arguments)


@study.command()
@_study_options
@click.option("-n", "ranks", default=21, show_default=True, type=click.IntRange(1), help="Ranks of a task.")
@click.option(
    "--hours",
    default=4.0,
    show_default=True,
    type=click.FloatRange(0.01, 8760),
    help="Longest walltime; no job asks for less than ten minutes.",
)
@click.option("--retry", is_flag=True, help="Cells that failed, too (not those that diverged).")
@click.option("--script", metavar="FILE", help="The array's job script. [default: study.sbatch of jobs/]")
@click.option("--dry-run", is_flag=True, help="Print what would be submitted, and submit nothing.")
@click.argument("options", metavar="[-- SBATCH-OPTIONS]", nargs=-1, type=click.UNPROCESSED)
def submit(**arguments: Any) -> None:
    """Submit the missing cells as a Slurm array, packed by the time they are expected to take.

    What follows -- goes to sbatch and has the last word: -- --account=me --partition=long. Cells that ask for
    other numbers of ranks get arrays of their own.
    """
    from hpcfl.study.submit import submit_study

    sys.exit(submit_study(**arguments))
