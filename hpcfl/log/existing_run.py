"""Where a run's log goes, and what is done about a file that is already there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcfl.config.identity import difference, fingerprint, with_rounds
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.reader import Run, read_log


def default_log_path(config: Config) -> Path:
    """Returns a name that the same configuration always gets, and no other."""
    return Path(f"{config.method.name}-{config.data.name}-{fingerprint(config)}.h5")


@dataclass(frozen=True)
class ExistingRun:
    """How far a run has come: not begun, unfinished with its log so far, or finished."""

    finished: bool = False
    log: Run | None = None


def find_existing_run(path: Path, plan: RunPlan, fresh: bool, note: Callable[[str], None]) -> ExistingRun:
    """Returns how far this run has come; raises if it may not start. No other run is ever overwritten."""
    config = plan.config
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(f"cannot write {path}: {path.parent} is not a directory that can be written to")
    if not os.path.lexists(path):
        return ExistingRun()
    if not path.is_file() and not path.is_dir():
        raise BadInput(f"cannot write {path}: it is not a file")
    old = read_log(path)
    if fresh:
        note(f"{path} will be kept under another name")
        return ExistingRun()
    rounds, more = old.config.federation.rounds, config.federation.rounds
    if change := difference(with_rounds(old.config, more), config):
        raise BadInput(f"{path} is a run of another configuration ({change}); choose another --out")
    for what, checksum in plan.checksums.items():
        if old.attributes.get(f"checksum_{what}") != checksum:
            raise BadInput(
                f"{path} is a run with other content of the same name ({what}); choose another --out"
            )
    if old.rounds_done > more:
        raise BadInput(f"federation.rounds = {more}: {path} has {old.rounds_done} rounds already")
    if old.status == "finished" and rounds == more:
        note(f"{path} is finished: {old.rounds_done} rounds; --fresh keeps it aside and runs again")
        return ExistingRun(finished=True)
    if old.status == "finished" and rounds % config.log.evaluate_every:
        raise BadInput(
            f"federation.rounds = {more}: {path} ended with round {rounds}, which was evaluated out of turn "
            f"(log.evaluate_every = {config.log.evaluate_every}), so that it cannot be extended"
        )
    if old.status == "diverged":
        raise BadInput(f"{path} diverged in round {old.rounds_done}; --fresh keeps it aside and runs again")
    return ExistingRun(log=old)
