"""hpcfl from Python: `hpcfl.train`, `hpcfl.open_run`, `hpcfl.open_study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from hpcfl.config.schema import Config
from hpcfl.log.reader import Run, read

if TYPE_CHECKING:
    from hpcfl.comm.mpi import MPI
    from hpcfl.federation.run_plan import Federation
    from hpcfl.study.results import Results


def open_run(path: str | Path) -> Run:
    """Returns a run's log: `run["/round/accuracy"]` is an array, `run.frame("rounds")` a pandas frame."""
    return read(path)


def open_study(path: str | Path) -> Results:
    """Returns the results of a study from its directory: `.means()` and `.frame()` are pandas frames."""
    from hpcfl.study.results import open_study as opened

    return opened(path)


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

    `config` is a TOML file, tables as a dictionary, or a checked configuration; `settings` are `KEY=VALUE` on
    top. As with the command, an unfinished run in `out` is continued, and a finished one returned as it is.

    With a communicator the run works on a copy of it, installs no signal handlers, and raises instead of
    aborting: `hpcfl.BadInput` where the input is wrong, `hpcfl.RunFailed` where every client diverged; what
    only one rank raises is `hpcfl.RunFailed` on the others. Without one it takes all ranks of the launcher,
    or this process alone, and SIGINT, SIGTERM or SIGUSR1 end it after its round: `run.status` is "stopped".
    """
    from hpcfl.comm.communicator import open_guest
    from hpcfl.comm.launcher import launcher
    from hpcfl.comm.serial import Solo
    from hpcfl.config.loading import loaded
    from hpcfl.engine.assemble import Around, conduct
    from hpcfl.engine.progress import Screen, Silent
    from hpcfl.federation.run_plan import plan
    from hpcfl.log.existing_run import default_path
    from hpcfl.runtime.devices import as_before, clear
    from hpcfl.runtime.exit_handling import Signals

    found = launcher() if comm is None else None
    alone = comm is None and found is None
    path = Path(out) if out is not None else None
    ready: Federation | Exception
    try:
        ready = plan(loaded(config, settings))
    except Exception as problem:
        if alone:
            raise
        ready = problem  # raised by all ranks, once they have met
    signals = Signals(speaks=False, open_mpi=found is not None and found.open_mpi is True)
    handlers = signals if comm is None and current_thread() is main_thread() else nullcontext()
    around = Around(Screen if progress else Silent, lambda: signals.asked, may_exit=False)
    guest = None if alone else open_guest(comm, found)
    link = guest or Solo()
    with guest.lent() if guest else nullcontext(), handlers, as_before():
        conduct(link, ready, path, fresh, around)
        clear()
    if not link.is_server or isinstance(ready, Exception):
        return None
    return read(path or default_path(ready.config))
