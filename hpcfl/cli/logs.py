"""The commands that follow a log or write it in other forms."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("run", metavar="RUN.h5")
@click.option("--every", default=2.0, show_default=True, type=click.FloatRange(0.1, 86400), help="Seconds.")
@click.option("--once", is_flag=True, help="One picture, and the end.")
def watch(run: str, every: float, once: bool) -> None:
    """Watch a running job from any node that sees its log.

    A picture that is drawn anew on a terminal, one line per new round elsewhere; it ends when the run is
    finished or diverged; one that is stopped meanwhile is waited for to go on. Exit codes: 0 finished,
    stopped early or, with --once, not ended yet, 1 diverged, 2 bad input, 130 left with Ctrl-C.
    """
    from hpcfl.watch.command import watch_run

    sys.exit(watch_run(run, every, once))


@click.command()
@click.argument("runs", metavar="RUN.h5...", nargs=-1, required=True)
@click.option("--to", "kind", required=True, type=click.Choice(["csv", "tensorboard"]))
@click.option("-o", "out", metavar="DIR", help="Where each run gets a directory. [default: beside the run]")
def export(runs: tuple[str, ...], kind: str, out: str | None) -> None:
    """Write runs as CSV files or for TensorBoard, each to a directory of its own."""
    from hpcfl.export.command import print_exported

    print_exported(runs, kind, out)
