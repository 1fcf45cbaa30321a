"""The directory of a study: a log per cell, and marks of cells that cannot be run."""

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
from hpcfl.log.reader import as_bad_input, read_log
from hpcfl.log.summary import NEEDS, Summary, summary
from hpcfl.runtime.lock import is_locked
from hpcfl.study.cells import Cell
from hpcfl.utils.files import move_into_place, part_file

PATIENCE = 5
"""Starts of a cell without a further round after which it counts as failed: something kills it every time."""


@dataclass(frozen=True)
class CellProgress:
    """How far a cell has come."""

    state: str
    """finished, running, unfinished, waiting; or diverged, failed, bad: it is not run (again)."""
    rounds: int = 0
    reason: str = ""
    summary: Summary = field(default_factory=Summary)
    ranks: int = 0
    """Those that it ran on last; 0: none yet."""

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "diverged", "failed", "bad")


def count_states(states: Iterable[str]) -> str:
    """Returns how many cells are in each state, in words."""
    return ", ".join(f"{number} {state}" for state, number in Counter(states).items())


class RunStore:
    """Where the cells of a study lie."""

    def __init__(self, path: Path):
        self.path = path
        self.jobs = path / "jobs"
        """Of arrays: their tasks, and what they print."""

    def make(self) -> None:
        """Makes the directory."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None
        if not os.access(self.path, os.W_OK):
            raise BadInput(f"cannot write {self.path}: it is a directory that you may not write to")

    def log(self, cell: Cell) -> Path:
        return self.path / f"{cell.name}.h5"

    def progress(self, cell: Cell) -> CellProgress:
        """Returns how far a cell has come, by what lies on disk."""
        if cell.config is None:
            return CellProgress("bad", reason=cell.problem)
        path, seen = self.log(cell), CellProgress("waiting")
        if os.path.exists(path):
            try:
                with as_bad_input(path):
                    run = read_log(path, NEEDS)
                    ranks = int(run.attributes["ranks"])
                    seen = CellProgress("unfinished", run.rounds_done, "", summary(run), ranks)
            except BadInput as error:
                return CellProgress("bad", reason=str(error))
            wanted = cell.config.federation.rounds
            if change := difference(with_rounds(run.config, wanted), cell.config):
                reason = f"{path} is of another configuration ({change}); choose another --out"
                return replace(seen, state="bad", reason=reason)
            if run.rounds_done > wanted:
                reason = f"{path} has {run.rounds_done} rounds already, more than {wanted}"
                return replace(seen, state="bad", reason=reason)
            if run.status == "diverged":
                reason = f"in round {run.rounds_done}; --retry runs it again"
                return replace(seen, state="diverged", reason=reason)
            if run.status == "finished" and run.config.federation.rounds == wanted:
                return replace(seen, state="finished")
            if run.status == "finished" and not checkpoint_directory(path).exists():
                done = f"{run.rounds_done} rounds are finished"
                reason = f"begins again: {done}, but their checkpoint was not kept (--keep)"
                seen = replace(seen, state="waiting", rounds=0, reason=reason)
        if reason := self._failure(cell):
            return replace(seen, state="failed", reason=reason)
        if is_locked(path):
            return replace(seen, state="running")
        tries, _ = self._tries(cell)
        if tries >= PATIENCE:
            return replace(seen, state="failed", reason=f"started {tries} times without a further round")
        return seen

    def _failure(self, cell: Cell) -> str:
        """Returns the last word of the rank that failed in an earlier start; nothing if none did."""
        try:
            return self._mark(cell).read_text(errors="replace").strip().splitlines()[-1]
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, IndexError):
            return "unknown"

    def count_start(self, cell: Cell, rounds: int) -> None:
        """Counts a start of a cell that has so many rounds; starts that bring it forward do not add up."""
        tries, before = self._tries(cell)
        try:
            self._write(self._counter(cell), json.dumps([tries + 1 if rounds <= before else 1, rounds]))
        except OSError as error:
            raise Fatal(f"cannot write {self.path}: {error.strerror}; the same command goes on") from None

    def clear_starts(self, cell: Cell) -> None:
        """Notes that a start ended in good order."""
        self._counter(cell).unlink(missing_ok=True)

    def drop_checkpoints(self, cell: Cell) -> None:
        """Removes what a finished cell would be continued from: all its clients, twice."""
        shutil.rmtree(checkpoint_directory(self.log(cell)), ignore_errors=True)

    def was_interrupted(self, cell: Cell) -> bool:
        """Says whether the last start of a cell did not end in good order, or has not ended yet."""
        return self._counter(cell).exists()

    def mark_failed(self, cell: Cell, text: str) -> None:
        """Marks a cell as failed: any rank may know why, and the first that does is heard."""
        with contextlib.suppress(OSError):  # the disk may be what failed
            if not self._mark(cell).exists():
                self._write(self._mark(cell), text)

    def clear_failure(self, cell: Cell) -> str:
        """Takes the marks of a cell away, and returns what they said."""
        said = ""
        try:
            with contextlib.suppress(FileNotFoundError):
                said = self._mark(cell).read_text(errors="replace")
                self._mark(cell).unlink()
            self.clear_starts(cell)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None
        return said

    def _tries(self, cell: Cell) -> tuple[int, int]:
        try:
            tries, rounds = json.loads(self._counter(cell).read_text())
            return int(tries), int(rounds)
        except (OSError, ValueError, TypeError):
            return 0, -1

    def _mark(self, cell: Cell) -> Path:
        return self.path / "failed" / f"{cell.name}.txt"

    def _counter(self, cell: Cell) -> Path:
        return self.path / "starts" / f"{cell.name}.json"

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        with part_file(path) as part:
            part.write_text(text)
            move_into_place(part, path)
