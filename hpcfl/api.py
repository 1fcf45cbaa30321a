"""hpcfl from Python: `hpcfl.prepare`, `hpcfl.train`, `hpcfl.open_run`, `hpcfl.open_study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcfl.config.schema import Config
from hpcfl.log import reader

if TYPE_CHECKING:
    from hpcfl.comm.mpi import MPI
    from hpcfl.export.saved_clients import SavedClient, SavedClients
    from hpcfl.study.results import Results


class Run(reader.Run):
    """A log in memory, and the clients that were saved beside it."""

    @cached_property
    def _clients(self) -> SavedClients:
        from hpcfl.export.saved_clients import SavedClients

        return SavedClients(self)

    def client(self, i: int) -> SavedClient:
        """Returns client i after the last round, with its `.network()` and its `.samples()`."""
        return self._clients.client(i)


def open_run(path: str | Path) -> Run:
    """Returns a run: `run["/round/accuracy"]` is an array, `run.client(0).network()` a torch module."""
    return Run(**vars(reader.read_log(path)))


def open_study(path: str | Path) -> Results:
    """Returns the results of a study from its directory: `.means()` and `.frame()` are pandas frames."""
    from hpcfl.study.results import read_results

    return read_results(path)


def prepare(
    name: str,
    x: Any,
    y: Any = None,
    writer: Any = None,
    *,
    test: Any = None,
    names: Sequence[str] | None = None,
    layout: Literal["nhwc", "nchw"] | None = None,
    size: int | None = None,
    root: str | Path | None = None,
    fresh: bool = False,
) -> Path:
    """Prepares your own data as the dataset `name`, for `data.name = name`, and returns its file.

    `x` and `y` are arrays or tensors, a sample in each row; or `x` is a torch Dataset of pairs (x, y), and
    `y` is left out. `writer` is the natural client of each sample. `test` is the test part, given like `x`
    or as (x, y). `names` are those of the labels 0, 1, …. A file with the same samples stays; `fresh`
    replaces any.
    """
    from hpcfl.config.data import DataConfig
    from hpcfl.data.prepare import prepare_python
    from hpcfl.data.sources.python_data import python_dataset

    raw = python_dataset(x, y, writer, test, names, layout)
    return prepare_python(name, raw, Path(root or DataConfig().root), size, fresh)


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
    return open_run(job.log) if job.is_server else None
