"""hpcfl from Python: `hpcfl.train`, `hpcfl.open_run`, `hpcfl.open_study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcfl.config.schema import Config
from hpcfl.log.reader import Run, read_log

if TYPE_CHECKING:
    from hpcfl.comm.mpi import MPI
    from hpcfl.study.results import Results


def open_run(path: str | Path) -> Run:
    """Returns a run's log: `run["/round/accuracy"]` is an array, `run.frame("rounds")` a pandas frame."""
    return read_log(path)


def open_study(path: str | Path) -> Results:
    """Returns the results of a study from its directory: `.means()` and `.frame()` are pandas frames."""
    from hpcfl.study.results import read_results

    return read_results(path)


def train(
    config: str | Path | Mapping[str, Any] | Config | None = None,
    comm: MPI.Intracomm | None = None,
    *,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    fresh: bool = False,
    progress: bool = False,
) -> Run | None:
    """Runs a federation and returns its log on rank 0, None on the other ranks; all of them call it.

    `config` is a TOML file, the name of a shipped one, tables as a dictionary, or a checked configuration;
    `settings` are `KEY=VALUE` on top. As with the command, an unfinished run in `out` is continued, and a
    finished one returned as it is.

    With a communicator the run works on a copy of it, installs no signal handlers, and raises instead of
    aborting: `hpcfl.BadInput` where the input is wrong, `hpcfl.RunFailed` where every client diverged; what
    only one rank raises is `hpcfl.RunFailed` on the others. Without one it takes all ranks of the launcher,
    or this process alone, and SIGINT, SIGTERM or SIGUSR1 end it after its round: `run.status` is "stopped".
    """
    from hpcfl.engine.launch import Embedding, TrainJob
    from hpcfl.engine.progress import NoProgress, ProgressLines

    job = TrainJob(config, settings, out, fresh, Embedding(comm, ProgressLines if progress else NoProgress))
    job.launch()
    return read_log(job.log) if job.is_server else None
