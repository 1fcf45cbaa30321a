"""The directory of a study: a log per cell, start counters, and failure files of cells."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcfl.checkpoint.store import checkpoint_directory
from hpcfl.config.identity import difference, with_rounds
from hpcfl.errors import BadInput, Fatal
from hpcfl.federation.run_plan import code_checksums
from hpcfl.log.existing_run import changed_module
from hpcfl.log.reader import as_bad_input, read_log
from hpcfl.log.summary import SUMMARY_ROWS, Summary, summary
from hpcfl.runtime.lock import is_locked
from hpcfl.study.cells import Cell
from hpcfl.utils.files import write_atomically
from hpcfl.utils.formatting import plural
from hpcfl.utils.hdf5_file import read_regular

OTHER_CODE = "move it away to run the cell again, or choose another --out"
MAX_STARTS = 5
"""A cell that was started this often without completing a further round counts as failed."""


@dataclass(frozen=True)
class CellProgress:
    """How far a cell has come."""

    state: str
    """finished, running, unfinished or waiting; diverged, failed and bad cells are not run (again)."""
    rounds: int = 0
    reason: str = ""
    summary: Summary = field(default_factory=Summary)
    ranks: int = 0
    """Ranks of its last start; 0 if it has not run yet."""

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "diverged", "failed", "bad")


def count_states(states: Iterable[str]) -> str:
    """Returns how many cells are in each state, as text."""
    return ", ".join(f"{number} {state}" for state, number in Counter(states).items())


class RunStore:
    """The directory with the logs of a study's cells."""

    def __init__(self, path: Path):
        self.path = path
        self.jobs = path / "jobs"
        """Directory for the task files of job arrays, and their output."""

    def make(self) -> None:
        """Creates the directory."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None
        if not os.access(self.path, os.W_OK):
            raise BadInput(f"cannot write {self.path}: it is a directory that you may not write to")

    def log(self, cell: Cell) -> Path:
        return self.path / f"{cell.name}.h5"

    def progress(self, cell: Cell) -> CellProgress:
        """Returns how far a cell has come, from the files on disk."""
        if cell.config is None:
            return CellProgress("bad", reason=cell.problem)
        path, progress = self.log(cell), CellProgress("waiting")
        if os.path.exists(path):
            try:
                with as_bad_input(path):
                    run = read_log(path, SUMMARY_ROWS)
                    ranks = int(run.attributes["ranks"])
                    progress = CellProgress("unfinished", run.rounds_done, "", summary(run), ranks)
            except BadInput as error:
                return CellProgress("bad", reason=f"{error}; without this file the cell runs again")
            rounds = cell.config.federation.rounds
            if change := difference(with_rounds(run.config, rounds), cell.config):
                reason = f"{path} is of another configuration ({change}); choose another --out"
                return replace(progress, state="bad", reason=reason)
            if module := changed_module(run, code_checksums(cell.config)):
                reason = f"{path} is of other code: {module} has changed since; {OTHER_CODE}"
                return replace(progress, state="bad", reason=reason)
            if run.rounds_done > rounds:
                reason = f"{path} has {plural(run.rounds_done, 'round')} already, more than {rounds}"
                return replace(progress, state="bad", reason=reason)
            if run.status == "diverged":
                reason = f"in round {run.rounds_done}; --retry runs it again"
                return replace(progress, state="diverged", reason=reason)
            if run.status == "finished" and run.config.federation.rounds == rounds:
                return replace(progress, state="finished")
            if run.status == "finished" and not checkpoint_directory(path).exists():
                done = plural(run.rounds_done, "round is finished", "rounds are finished")
                reason = f"begins again: {done}, but their checkpoint was not kept (--keep)"
                progress = replace(progress, state="waiting", rounds=0, reason=reason)
        if reason := self._failure(cell):
            return replace(progress, state="failed", reason=reason)
        if is_locked(path):
            return replace(progress, state="running")
        starts, _ = self._starts(cell)
        if starts >= MAX_STARTS:
            return replace(progress, state="failed", reason=f"started {starts} times without a further round")
        return progress

    def _failure(self, cell: Cell) -> str:
        """Returns the last line of the cell's failure file; an empty string if there is none."""
        try:
            return read_regular(self._failure_file(cell)).decode(errors="replace").strip().splitlines()[-1]
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, IndexError):
            return "unknown"

    def count_start(self, cell: Cell, rounds: int) -> None:
        """Counts a start of a cell with `rounds` done; progress since the last start resets the counter."""
        starts, before = self._starts(cell)
        try:
            self._write(self._starts_file(cell), json.dumps([starts + 1 if rounds <= before else 1, rounds]))
        except OSError as error:
            raise Fatal(f"cannot write {self.path}: {error.strerror}; the same command goes on") from None

    def clear_starts(self, cell: Cell) -> None:
        """Removes the start counter after a start that ended normally."""
        self._starts_file(cell).unlink(missing_ok=True)

    def drop_checkpoints(self, cell: Cell) -> None:
        """Removes the checkpoints of a finished cell, which hold all its clients twice."""
        shutil.rmtree(checkpoint_directory(self.log(cell)), ignore_errors=True)

    def was_interrupted(self, cell: Cell) -> bool:
        """Returns whether the last start of a cell did not end normally, or has not ended yet."""
        return self._starts_file(cell).exists()

    def mark_failed(self, cell: Cell, text: str) -> None:
        """Writes the failure file of a cell; any rank may call this, and the first text is kept."""
        with contextlib.suppress(OSError):  # the disk itself may have failed
            if not self._failure_file(cell).exists():
                self._write(self._failure_file(cell), text)

    def clear_failure(self, cell: Cell) -> str:
        """Removes the failure file and start counter of a cell, and returns the failure text."""
        text = ""
        try:
            with contextlib.suppress(FileNotFoundError):
                text = read_regular(self._failure_file(cell)).decode(errors="replace")
                self._failure_file(cell).unlink()
            self.clear_starts(cell)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None
        return text

    def _starts(self, cell: Cell) -> tuple[int, int]:
        """Returns the number of starts without progress, and the rounds done before them."""
        try:
            starts, rounds = json.loads(read_regular(self._starts_file(cell)))
            return int(starts), int(rounds)
        except (OSError, ValueError, TypeError):
            return 0, -1

    def _failure_file(self, cell: Cell) -> Path:
        return self.path / "failed" / f"{cell.name}.txt"

    def _starts_file(self, cell: Cell) -> Path:
        return self.path / "starts" / f"{cell.name}.json"

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text.encode(errors="replace"))
