"""`hpcfl export`: writes each run to a directory; only replaces files that an earlier export wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.export import csv_files, mlflow_store, tensorboard_events, wandb_run
from hpcfl.export.replace_files import replace_files
from hpcfl.export.scalars import require
from hpcfl.log.reader import Run, read_log
from hpcfl.utils.formatting import plural, print_line

Writer = Callable[[Run, Path], Iterator[str]]
"""Writes a run to a directory and yields the names of its files."""
MANY = 8
"""More files than this are counted, not named."""


def print_exported(
    paths: Sequence[str], kind: str, out: str | None, clients: Sequence[int] = (), samples: bool = False
) -> None:
    """Exports each run and prints its directory."""
    writer = _writer(kind, clients, samples)
    runs = [Path(path) for path in paths]
    for run in runs:
        if run.is_dir():
            raise BadInput(f"{run} is a directory; export the logs in it, as {run}/*-*.h5")
        if out is not None and run.stem in (".", ".."):
            raise BadInput(f"{run}: {run.stem!r} is no name for a directory in {out}; rename the log")
    if kind == "mlflow" and out is not None:  # one store for all runs
        require(kind)
        logs = [read_log(run) for run in runs]
        files = replace_files(Path(out), kind, ", ".join(paths), partial(mlflow_store.write, logs))
        print_line(f"{plural(len(runs), 'run')}: {', '.join(files)} in {out}")
        return
    directories = [
        run.with_name(f"{run.stem}-{kind}") if out is None else Path(out) / run.stem for run in runs
    ]
    for directory, count in Counter(directories).items():
        if count > 1:
            raise BadInput(
                f"{directory} would hold {count} runs: export them one by one, each with its own -o"
            )
    for run, directory in zip(runs, directories, strict=True):
        log = read_log(run, saved=kind == "torch")
        files = replace_files(directory, kind, run.name, partial(writer, log))
        named = ", ".join(files) if len(files) <= MANY else f"{', '.join(files[:3])}, … ({len(files)} files)"
        print_line(f"{run}: {named} in {directory}")


def _writer(kind: str, clients: Sequence[int], samples: bool) -> Writer:
    """Returns what writes a run in this form; raises BadInput if that needs a package that is missing."""
    if kind == "torch":
        from hpcfl.export.torch_files import TorchExport

        return TorchExport(clients, samples).write
    if clients or samples:
        raise BadInput(f"--client and --samples: only with --to torch, not {kind}")
    if kind == "csv":
        return csv_files.write
    require(kind)
    if kind == "mlflow":
        return lambda run, directory: mlflow_store.write([run], directory)
    return tensorboard_events.write if kind == "tensorboard" else wandb_run.write
