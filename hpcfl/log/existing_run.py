"""The default path of a log, and the check of a log that exists already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcfl.config.identity import difference, fingerprint, with_rounds
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import CODE, RunPlan
from hpcfl.log.reader import NotALog, Run, read_log
from hpcfl.log.schema import ONLY_SAVED
from hpcfl.log.writer import EarlierRows
from hpcfl.metrics.metric import Metric
from hpcfl.utils.formatting import plural
from hpcfl.utils.hdf5_file import is_hdf5

CHECKSUM = "checksum_"
"""The names of the attributes of a log that have checksums begin with this."""


def default_log_path(config: Config) -> Path:
    """Returns a file name that is unique to the configuration."""
    method = config.method.name.replace(":", ".")
    return Path(f"{method}-{config.data.name}-{fingerprint(config)}.h5")


@dataclass(frozen=True)
class OptionNames:
    """How messages name what a user may change."""

    fresh: str = "--fresh"
    out: str = "--out"

    @property
    def again(self) -> str:
        return f"{self.fresh} keeps it aside and runs again"


COMMAND_NAMES = OptionNames()
PYTHON_NAMES = OptionNames("fresh=True", "out=")


@dataclass(frozen=True)
class ExistingRun:
    """State of a run before it starts: new, unfinished (with its log so far), or finished."""

    finished: bool = False
    log: Run | None = None


def find_existing_run(
    path: Path, plan: RunPlan, fresh: bool, note: Callable[[str], None], names: OptionNames
) -> ExistingRun:
    """Returns the state of this run; raises BadInput if `path` holds another run, or cannot be continued."""
    config, another = plan.config, f"{names.again}, or choose another {names.out}"
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(f"cannot write {path}: {path.parent} is not a directory that can be written to")
    if not os.path.lexists(path):
        return ExistingRun()
    if not path.is_file() and not path.is_dir():
        raise BadInput(f"cannot write {path}: it is not a file")
    try:
        old = read_log(path)
    except NotALog:
        raise
    except BadInput as error:
        if not is_hdf5(path):  # it may be any file of the user's
            raise
        if not fresh:
            raise BadInput(f"{error}; {names.again}") from None
    if fresh:
        note(f"{path} will be kept under another name")
        return ExistingRun()
    rounds, more = old.config.federation.rounds, config.federation.rounds
    if change := difference(with_rounds(old.config, more), config):
        raise BadInput(f"{path} is a run of another configuration ({change}); {another}")
    if module := changed_module(old, plan.checksums):
        raise BadInput(f"{path} is a run with other code: {module} has changed since; {another}")
    if what := changed_content(old, plan.checksums):
        raise BadInput(f"{path} is a run with other content of the same name ({what}); {another}")
    if old.rounds_done > more:
        raise BadInput(f"federation.rounds = {more}: {path} has {plural(old.rounds_done, 'round')} already")
    if old.status == "finished" and rounds == more:
        note(f"{path} is finished: {plural(old.rounds_done, 'round')}; {names.again}")
        return ExistingRun(finished=True)
    if old.status == "finished" and rounds % config.log.evaluate_every:
        raise BadInput(
            f"federation.rounds = {more}: {path} ended with round {rounds}, which was evaluated out of turn "
            f"(log.evaluate_every = {config.log.evaluate_every}), so that it cannot be extended"
        )
    if old.status == "diverged":
        raise BadInput(f"{path} diverged in round {old.rounds_done}; {names.again}")
    return ExistingRun(log=old)


def logged_checksums(run: Run) -> dict[str, str]:
    """Returns the checksums of a run's data, split, code and other files, by name."""
    return {
        name.removeprefix(CHECKSUM): str(value)
        for name, value in run.attributes.items()
        if name.startswith(CHECKSUM)
    }


def changed_content(old: Run, checksums: Mapping[str, str]) -> str:
    """Returns the first of these checksums that differs from that of a log, by name; empty: none."""
    before = logged_checksums(old)
    return next((name for name, checksum in checksums.items() if before.get(name) != checksum), "")


def changed_module(old: Run, checksums: Mapping[str, str]) -> str:
    """Returns the first module of the user's own code that differs from that of a log; empty: none."""
    before, now = (
        {key.removeprefix(CODE): value for key, value in given.items() if key.startswith(CODE)}
        for given in (logged_checksums(old), checksums)
    )
    return min((name for name in before | now if before.get(name) != now.get(name)), default="")


def earlier_rows(log: Run, round_: int, config: Config, metrics: Iterable[Metric]) -> EarlierRows:
    """Returns the rows of a log up to a round, as in a run without interruption."""
    done = round_ + 1
    saved_rounds = log["/prototypes/saved_round"]
    keep = np.array([t < done and config.saves_prototypes(int(t)) for t in saved_rounds], dtype=bool)
    rows = {}
    for metric in metrics:
        if metric.dims[0] == "round":
            rows[metric.path] = log[metric.path][:done]
            if metric.path in ONLY_SAVED:  # the last round of a finished run was saved out of turn
                in_turn = np.array([config.saves_prototypes(t) for t in range(done)], dtype=bool)
                rows[metric.path] = np.where(in_turn, rows[metric.path], np.nan)
        elif metric.dims[0] == "saved":
            rows[metric.path] = log[metric.path][keep]
        elif metric.dims[0] == "chosen":
            rows[metric.path] = log[metric.path][log["/features/round"] < done]
    run_id, start = str(log.attributes.get("run_id", "")), str(log.attributes["start"])
    return EarlierRows(run_id, start, int(log.attributes["restarts"]) + 1, rows)
