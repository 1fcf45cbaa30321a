"""The commands on logs of runs: show, diff, watch, export, report."""

from __future__ import annotations

import sys

import click


@click.command()
@click.argument("runs", metavar="RUN.h5...", nargs=-1, required=True)
@click.option(
    "--target",
    metavar="ACCURACY",
    type=click.FloatRange(0, 1),
    help="Also rounds, bytes and seconds until this accuracy, such as 0.9.",
)
def show(runs: tuple[str, ...], target: float | None) -> None:
    """Show a run at a glance, several side by side, or a study by its directory."""
    from hpcfl.errors import BadInput
    from hpcfl.log.reader import is_study

    if len(runs) == 1 and is_study(runs[0]):
        if target is not None:
            raise BadInput(f"--target {target}: is for runs; give the logs of the study's cells")
        from hpcfl.study.results_table import print_study

        print_study(runs[0])
    else:
        from hpcfl.report.runs import print_runs

        print_runs(runs, target)


@click.command()
@click.argument("one", metavar="A.h5")
@click.argument("other", metavar="B.h5")
def diff(one: str, other: str) -> None:
    """Compare the results of two runs bit for bit.

    If they differ, the first round, client and dataset are named. Measured values, such as seconds, are not
    compared. Exit codes: 0 equal, 1 different, 2 bad input.
    """
    from hpcfl.report.diff import print_diff

    sys.exit(print_diff(one, other))


@click.command()
@click.argument("run", metavar="RUN.h5")
@click.option(
    "--every", "interval", default=2.0, show_default=True, type=click.FloatRange(0.1, 86400), help="Seconds."
)
@click.option("--once", is_flag=True, help="One picture, and the end.")
def watch(run: str, interval: float, once: bool) -> None:
    """Watch a running job from any node that sees its log.

    A picture that is drawn anew on a terminal, one line per new round elsewhere; it ends when the run is
    finished or diverged; one that is stopped meanwhile is waited for to go on. Exit codes: 0 finished,
    stopped early or, with --once, not ended yet, 1 diverged, 2 bad input, 130 left with Ctrl-C.
    """
    from hpcfl.watch.command import watch_run

    sys.exit(watch_run(run, interval, once))


@click.command()
@click.argument("run", metavar="RUN.h5")
@click.option(
    "--profile", type=click.Choice(["phones", "hospitals", "lan"]), help="Devices: docs/devices.md."
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A key of [system]; repeatable.")
@click.option(
    "--target", metavar="ACCURACY", type=click.FloatRange(0, 1), help="Also what this accuracy costs."
)
@click.option("-o", "out", metavar="OUT.h5", help="A new log with the clock, for show and report.")
def clock(
    run: str, profile: str | None, settings: tuple[str, ...], target: float | None, out: str | None
) -> None:
    """Compute how long a finished run would take on these devices.

    For runs in which every round waits for all participants: nothing is trained, and the results do not
    change. The run's dataset must be there, because its shapes and split say what a client computes.
    """
    from hpcfl.report.clock import print_clock

    print_clock(run, profile, settings, target, out)


@click.command()
@click.argument("runs", metavar="RUN.h5...|STUDY_DIR", nargs=-1, required=True)
@click.option(
    "--to",
    "kind",
    required=True,
    type=click.Choice(["csv", "tensorboard", "wandb", "mlflow", "torch", "latex", "reference"]),
)
@click.option("-o", "out", metavar="DIR", help="Where each run gets a directory. [default: beside the run]")
@click.option(
    "--client", "clients", metavar="I", type=int, multiple=True, help="With torch: this client; repeatable."
)
@click.option("--samples", is_flag=True, help="With torch: also the clients' test samples.")
def export(
    runs: tuple[str, ...], kind: str, out: str | None, clients: tuple[int, ...], samples: bool
) -> None:
    """Write runs as CSV files, for a tracker or for torch, or the tables of a study as CSV or LaTeX.

    wandb: an offline run, which `wandb sync DIR/offline-run-*` sends. mlflow: a store; with -o one for all.
    reference: a study's results in one file, which hpcfl report --reference puts beside those of a later run.

    torch: the clients' networks after the last round, which torch loads without hpcfl, prototypes and saved
    features. Each run, or the study, gets a directory of its own.
    """
    from hpcfl.errors import BadInput
    from hpcfl.log.reader import is_study

    if len(runs) == 1 and kind in ("csv", "latex") and is_study(runs[0]):
        from hpcfl.report.export_study import print_exported_study

        print_exported_study(runs[0], kind, out)
        return
    if len(runs) == 1 and kind == "reference" and is_study(runs[0]):
        from hpcfl.report.export_reference import print_exported_reference

        print_exported_reference(runs[0], out)
        return
    if kind == "reference":
        raise BadInput("--to reference takes the directory of one study")
    if kind == "latex":
        raise BadInput("--to latex takes the directory of a study; hpcfl report writes the tables of runs")
    from hpcfl.export.command import print_exported

    print_exported(runs, kind, out, clients, samples)


@click.command()
@click.argument("runs", metavar="RUN.h5...|STUDY_DIR", nargs=-1, required=True)
@click.option("-o", "out", metavar="DIR", required=True, help="Where the report is written.")
@click.option("--title", help="Heading of the page. [default: the study's name]")
@click.option(
    "--target",
    metavar="ACCURACY",
    type=click.FloatRange(0, 1, min_open=True),
    help="Accuracy whose cost is shown, as 0.9. [default: 90% of the best]",
)
@click.option("--reference", metavar="FILE", help="Published numbers to compare with: docs/report.md.")
def report(
    runs: tuple[str, ...], out: str, title: str | None, target: float | None, reference: str | None
) -> None:
    """Write figures, tables and a page about runs, or about a study by its directory.

    DIR/index.html is one page that needs no network; figures (SVG, PDF, PNG, CSV), tables (Markdown, LaTeX,
    CSV) and configurations lie beside it. A second report replaces the files of the first, and no others.
    """
    from hpcfl.report.command import print_report

    print_report(runs, out, title, target, reference)
