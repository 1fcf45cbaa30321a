"""The command that copies the job scripts: `hpcfl jobs`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command()
@click.argument("directory", metavar="[DIR]", default="jobs")
def jobs(directory: str) -> None:
    """Copy the job scripts for Slurm, PBS and LSF to DIR, by default ./jobs.

    Files that are there already stay as they are; one that differs from the shipped one is refused.
    """
    from hpcfl.share.job_scripts import copy_jobs
    from hpcfl.utils.formatting import plural

    number = copy_jobs(Path(directory))
    copied = (
        f"{plural(number, 'file')} copied to {directory}" if number else f"{directory} has all files already"
    )
    click.echo(f"{copied}; {directory}/README.md says how to submit")
    if Path(directory).resolve() != Path("jobs").resolve():
        click.echo(f"set HPCFL_JOBS={shlex.quote(str(Path(directory).resolve()))} where you submit")
