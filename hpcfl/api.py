"""hpcfl from Python: `hpcfl.train`, `hpcfl.open_run`, `hpcfl.open_study`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from hpcfl.config.schema import Config
from hpcfl.log.reader import Run, read_log

if TYPE_CHECKING:
    from hpcfl.comm.mpi import MPI
    from hpcfl.federation.run_plan import RunPlan
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

    `config` is a TOML file, tables as a dictionary, or a checked configuration; `settings` are `KEY=VALUE` on
    top. As with the command, an unfinished run in `out` is continued, and a finished one returned as it is.

    With a communicator the run works on a copy of it, installs no signal handlers, and raises instead of
    aborting: `hpcfl.BadInput` where the input is wrong, `hpcfl.RunFailed` where every client diverged; what
    only one rank raises is `hpcfl.RunFailed` on the others. Without one it takes all ranks of the launcher,
    or this process alone, and SIGINT, SIGTERM or SIGUSR1 end it after its round: `run.status` is "stopped".
    """
    from hpcfl.comm.communicator import open_guest
    from hpcfl.comm.launcher import find_launcher
    from hpcfl.comm.serial import SerialCommunicator
    from hpcfl.config.loading import load_config
    from hpcfl.engine.assemble import RunHooks, run_federation
    from hpcfl.engine.progress import NoProgress, ProgressLines
    from hpcfl.federation.run_plan import plan_run
    from hpcfl.log.existing_run import default_log_path
    from hpcfl.runtime.devices import free_memory, preserve_torch_settings
    from hpcfl.runtime.exit_handling import StopSignals

    launcher = find_launcher() if comm is None else None
    alone = comm is None and launcher is None
    path = Path(out) if out is not None else None
    plan_or_problem: RunPlan | Exception
    try:
        plan_or_problem = plan_run(load_config(config, settings))
    except Exception as problem:
        if alone:
            raise
        plan_or_problem = problem  # raised by all ranks, once they have met
    signals = StopSignals(prints=False, open_mpi=launcher is not None and launcher.open_mpi is True)
    handlers = signals if comm is None and current_thread() is main_thread() else nullcontext()
    hooks = RunHooks(ProgressLines if progress else NoProgress, lambda: signals.received, may_exit=False)
    guest = None if alone else open_guest(comm, launcher)
    ranks = guest or SerialCommunicator()
    with guest.running() if guest else nullcontext(), handlers, preserve_torch_settings():
        run_federation(ranks, plan_or_problem, path, fresh, hooks)
        free_memory()
    if not ranks.is_server or isinstance(plan_or_problem, Exception):
        return None
    return read_log(path or default_log_path(plan_or_problem.config))
