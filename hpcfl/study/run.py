"""`hpcfl study run`: runs the missing cells one after another in one MPI job."""

from __future__ import annotations

import fnmatch
import gc
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcfl.comm.communicator import Communicator, is_mpi_error
from hpcfl.engine.launch import Session, launch, result_or_problem
from hpcfl.engine.progress import ProgressLines, choose_display
from hpcfl.engine.run import RunHooks, run_federation
from hpcfl.errors import BadInput, Fatal, Refused, RunFailed, nearest
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.devices import free_memory
from hpcfl.runtime.exit_handling import DONE, FAILED, STOPPED
from hpcfl.runtime.lock import LockHeld, was_restarted
from hpcfl.study.cells import Cell
from hpcfl.study.directory_owner import claim_directory
from hpcfl.study.merged_file import write_results
from hpcfl.study.results import log_attributes
from hpcfl.study.run_store import CellProgress, RunStore, count_states
from hpcfl.study.study_file import Study, read_study
from hpcfl.utils.digests import digest_of
from hpcfl.utils.files import absolute_path
from hpcfl.utils.formatting import plural, print_line


def run_study(
    path: str,
    scale: str,
    settings: Sequence[str],
    out: str | None,
    only: Sequence[str],
    retry: bool = False,
    keep: bool = False,
) -> int:
    """Runs the cells of a study that are not over yet and returns the exit code."""
    study = result_or_problem(lambda: read_study(path, scale, settings))
    cells = result_or_problem(lambda: select_cells(study, only)) if isinstance(study, Study) else study

    def job(session: Session) -> int:
        comm = session.comm
        with comm.raise_on_all():
            if isinstance(cells, Exception):
                raise cells
        assert isinstance(study, Study)
        with comm.raise_on_all():
            if len(set(comm.allgather_object(_fingerprint(cells)))) > 1:
                raise BadInput("the ranks read different studies: start them all with the same")
        if len({cell.config.runtime.threads for cell in cells if cell.config}) > 1:
            raise Refused(
                "runtime.threads: cells that run in the same processes share this number; choose those of "
                "one by --cell, or let `hpcfl study submit` keep them apart"
            )
        with comm.raise_on_all():
            directory, store = absolute_path(Path()), RunStore(absolute_path(study.directory(out)))
            if comm.is_server:
                claim_directory(study, store)
                study.print_start()
        return StudyRunner(session, study, cells, store, directory, retry, keep).run_all()

    return launch(job)


def _fingerprint(cells: Sequence[Cell]) -> str:
    return digest_of([(cell.name, cell.settings, cell.ranks) for cell in cells], 8)


def select_cells(study: Study, names: Sequence[str]) -> tuple[Cell, ...]:
    """Returns the cells of these names or patterns (`*-lan`), or all if none are given."""
    by_name = {cell.name: cell for cell in study.cells}
    chosen: dict[str, Cell] = {}
    for name in names:
        if not (found := fnmatch.filter(by_name, name)):
            raise BadInput(f"--cell {name}: {study.path} has no such cell{nearest(name, by_name)}")
        chosen |= {each: by_name[each] for each in found}
    return tuple(chosen.values()) if names else study.cells


class QuietProgress(ProgressLines):
    """Prints how a cell starts and ends, but no line per round."""

    def show_row(self, t: int, row: object) -> None:
        pass


@dataclass
class StudyRunner:
    """Runs the selected cells of a study in order; every rank has one."""

    session: Session
    study: Study
    cells: tuple[Cell, ...]
    """The selected cells."""
    store: RunStore
    directory: Path
    """The working directory, in which each cell starts, whatever the networks of earlier cells did."""
    retry: bool
    keep: bool
    """Whether checkpoints of finished cells are kept, so that more rounds can extend them."""
    started: float = field(default_factory=time.time)
    problems: list[str] = field(default_factory=list)
    """Names of cells that cannot be run or did not end well; on rank 0."""

    @property
    def comm(self) -> Communicator:
        return self.session.comm

    def run_all(self) -> int:
        """Runs the missing cells and returns the exit code."""
        number, early = 0, False
        while True:
            following = self._next(number) if self.comm.is_server else None
            gathered = self.comm.allgather_object((self.session.stop_requested, following))
            following = gathered[0][1]
            early = following is not None and (any(stop for stop, _ in gathered) or following[1] is None)
            if early or following is None:
                break
            number, progress = following
            if self.comm.is_server:
                print_line(self._cell_title(number))
            early = self._run(self.cells[number], progress) == STOPPED
            if early:
                break
            number += 1
        merged = self._report(early) if self.comm.is_server else True
        problems = self.comm.allgather_object(bool(self.problems) or not merged)[0]
        return STOPPED if early else FAILED if problems else DONE

    def _cell_title(self, number: int) -> str:
        return f"hpcfl: {self.study.title}, cell {number + 1} of {len(self.cells)}, {self.cells[number].name}"

    def _next(self, start: int) -> tuple[int, CellProgress | None] | None:
        """Returns the number of the next cell to run and its progress, None in its place if time is up.

        Returns None if no cell from `start` on is left to run.
        """
        for number in range(start, len(self.cells)):
            cell, title = self.cells[number], self._cell_title(number)
            progress = self.store.progress(cell)
            again = self.retry and not was_restarted() and progress.state in ("failed", "diverged")
            if progress.state == "finished":
                continue
            if progress.is_over and not again:
                self._record_problem(cell, f"{title}: {progress.state}: {progress.reason}")
                continue
            if progress.state == "running" and not was_restarted():
                print_line(f"{title}: another job runs it")
                continue
            if cell.ranks is not None and cell.ranks > self.comm.size:
                print_line(
                    f"{title}: left out, it asks for {cell.ranks} ranks and these are {self.comm.size}"
                )
                continue
            assert cell.config is not None
            deadline = Deadline(end_time(cell.config.runtime.walltime_minutes, self.started))
            return number, None if deadline.too_late_for_next(0.0) else progress
        return None

    def _run(self, cell: Cell, progress: CellProgress) -> int:
        """Runs one cell on its ranks and returns its exit code on all ranks."""
        os.chdir(self.directory)
        if self.comm.is_server and progress.is_over:  # it is run again
            self.store.clear_failure(cell)
        all_ranks = cell.ranks in (None, self.comm.size)
        comm = self.comm if all_ranks else self.comm.first_ranks(cell.ranks or 0)
        code, problem = DONE, ""
        if comm is not None:
            try:
                code = self._run_federation(comm, cell, progress)
            except (Refused, RunFailed) as error:
                code, problem = FAILED, str(error)
            except (Fatal, KeyboardInterrupt):
                raise  # not caused by the cell
            except BaseException as error:
                if not is_mpi_error(error):  # an MPI error means that another rank was killed
                    self.store.mark_failed(cell, f"rank {self.comm.rank}\n{traceback.format_exc()}")
                raise
            free_memory()
            if not gc.get_freeze_count():
                gc.freeze()  # later collections skip torch and other objects that stay until the end
            comm.release() if all_ranks else comm.close()
        code, problem = self.comm.allgather_object((code, problem))[0]
        if self.comm.is_server:
            self._record_end(cell, problem)
        return code

    def _record_end(self, cell: Cell, problem: str) -> None:
        """Records that a cell ended, and `problem` if it could not be run or failed."""
        state = self.store.progress(cell).state
        if state == "running":  # another job has taken it
            return
        self.store.clear_starts(cell)
        if state == "finished" and not self.keep:
            self.store.drop_checkpoints(cell)
        if problem and state != "finished":
            self._record_problem(cell, f"hpcfl: {problem}")

    def _run_federation(self, comm: Communicator, cell: Cell, progress: CellProgress) -> int:
        plan: RunPlan | Exception
        assert cell.config is not None
        try:
            plan = plan_run(cell.config)
        except BadInput as problem:
            plan = problem
        hooks = RunHooks(
            self._display,
            lambda: self.session.stop_requested,
            self.started,
            on_start=lambda: self.store.count_start(cell, progress.rounds),
            log_attributes=log_attributes(self.study, cell),
        )
        return run_federation(comm, plan, self.store.log(cell), progress.state == "diverged", hooks)

    def _display(self, rounds: int) -> ProgressLines:
        chosen = choose_display(rounds, self.session.launcher)
        return QuietProgress(rounds) if type(chosen) is ProgressLines else chosen

    def _record_problem(self, cell: Cell, text: str) -> None:
        self.problems.append(cell.name)
        print_line(text)

    def _report(self, early: bool) -> bool:
        """Merges the logs of the cells, and prints the state of the study; returns whether that succeeded.

        A job that is stopped early, or finds another one merging, leaves it to a later job.
        """
        merged, failed = "not merged yet", False
        try:
            if not early:  # a stopped job may have no time left to merge
                merged = f"merged: {write_results(self.study, self.store)}"
        except (BadInput, OSError) as error:
            merged = f"not merged ({error}), the cells' logs are whole"
            failed = not isinstance(error, LockHeld)
        states = [self.store.progress(cell).state for cell in self.study.cells]
        print_line(
            f"hpcfl: {self.study.title}: {plural(len(states), 'cell')}, {count_states(states)}; {merged}"
        )
        if early:
            print_line("hpcfl: stopped early; the same command goes on")
        return not failed
