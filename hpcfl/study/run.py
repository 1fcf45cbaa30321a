"""`hpcfl study run`: the missing cells one after another, in one start of MPI."""

from __future__ import annotations

import gc
import hashlib
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcfl.comm.communicator import Communicator, is_mpi_error
from hpcfl.comm.launcher import Launcher
from hpcfl.engine.assemble import RunHooks, run_federation
from hpcfl.engine.launch import result_or_problem, run_on_ranks
from hpcfl.engine.progress import ProgressLines, choose_display
from hpcfl.errors import BadInput, Fatal, Refused, RunFailed, nearest
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.runtime.deadline import Deadline, end_time
from hpcfl.runtime.devices import free_memory
from hpcfl.runtime.exit_handling import DONE, FAILED, STOPPED, StopSignals
from hpcfl.runtime.lock import was_restarted
from hpcfl.study.cells import Cell
from hpcfl.study.results import check_directory_owner, log_attributes, write_results
from hpcfl.study.run_store import CellProgress, RunStore, count_states
from hpcfl.study.study_file import Study, read_study
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

    def body(comm: Communicator, launcher: Launcher | None, signals: StopSignals) -> int:
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
            store = RunStore(study.place(out))
            check_directory_owner(study, store)
        return StudyRunner(comm, launcher, signals, study, cells, store, retry, keep).run_all()

    return run_on_ranks(body)


def _fingerprint(cells: Sequence[Cell]) -> str:
    said = repr([(cell.name, cell.settings, cell.ranks) for cell in cells])
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def select_cells(study: Study, names: Sequence[str]) -> tuple[Cell, ...]:
    """Returns the cells of these names; all if none is named."""
    known = {cell.name: cell for cell in study.cells}
    for name in names:
        if name not in known:
            raise BadInput(f"--cell {name}: {study.path} has no such cell{nearest(name, known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) if names else study.cells


class QuietProgress(ProgressLines):
    """Says what is about to run and how it ended, and nothing in between."""

    def show_row(self, t: int, row: object) -> None:
        pass


@dataclass
class StudyRunner:
    """A trip through the cells of a study; every rank makes it."""

    comm: Communicator
    launcher: Launcher | None
    signals: StopSignals
    study: Study
    cells: tuple[Cell, ...]
    """Those of this trip."""
    store: RunStore
    retry: bool
    keep: bool
    """Whether checkpoints of finished cells are kept, so that more rounds can extend them."""
    started: float = field(default_factory=time.time)
    problems: list[str] = field(default_factory=list)
    """Cells that cannot be run or did not end well; on rank 0."""

    def run_all(self) -> int:
        """Runs what is missing and returns the exit code."""
        with self.comm.raise_on_all():
            if self.comm.is_server:
                self.store.make()
        number, early = 0, False
        while True:
            todo = self._next(number) if self.comm.is_server else None
            asked, todos = zip(*self.comm.allgather_object((self.signals.received, todo)), strict=True)
            early = todos[0] is not None and (any(asked) or todos[0][1] is None)
            if early or todos[0] is None:
                break
            number, seen = todos[0]
            if self.comm.is_server:
                print_line(self._cell_title(number))
            early = self._run(self.cells[number], seen) == STOPPED
            if early:
                break
            number += 1
        if self.comm.is_server:
            self._report(early)
        problems = self.comm.allgather_object(bool(self.problems))[0]
        return STOPPED if early else FAILED if problems else DONE

    def _cell_title(self, at: int) -> str:
        return f"hpcfl: {self.study.title}, cell {at + 1} of {len(self.cells)}, {self.cells[at].name}"

    def _next(self, number: int) -> tuple[int, CellProgress | None] | None:
        """Returns the next cell to be run, from `number` on, and how far it has come; None: no time left."""
        for at in range(number, len(self.cells)):
            cell, where = self.cells[at], self._cell_title(at)
            seen = self.store.progress(cell)
            again = self.retry and not was_restarted() and seen.state in ("failed", "diverged")
            if seen.state == "finished":
                continue
            if seen.is_over and not again:
                self._record_problem(cell, f"{where}: {seen.state}: {seen.reason}")
                continue
            if seen.state == "running" and not was_restarted():
                print_line(f"{where}: another job runs it")
                continue
            if cell.ranks is not None and cell.ranks > self.comm.size:
                print_line(
                    f"{where}: left out, it asks for {cell.ranks} ranks and these are {self.comm.size}"
                )
                continue
            assert cell.config is not None
            end = Deadline(end_time(cell.config.runtime.walltime_minutes, self.started))
            return at, None if end.passed(0.0) else seen
        return None

    def _run(self, cell: Cell, seen: CellProgress) -> int:
        """Runs one cell on its ranks and returns its exit code on all."""
        if self.comm.is_server and seen.is_over:  # it is tried again
            self.store.clear_failure(cell)
        whole = cell.ranks in (None, self.comm.size)
        part = self.comm if whole else self.comm.first_ranks(cell.ranks or 0)
        code, why = DONE, ""
        if part is not None:
            try:
                code = self._run_federation(part, cell, seen)
            except (Refused, RunFailed) as error:
                code, why = FAILED, str(error)
            except (Fatal, KeyboardInterrupt):
                raise  # not the cell's own
            except BaseException as error:
                if not is_mpi_error(error):  # what a rank meets when another was killed
                    self.store.mark_failed(cell, f"rank {self.comm.rank}\n{traceback.format_exc()}")
                raise
            free_memory()
            if not gc.get_freeze_count():
                gc.freeze()  # torch and all that is here to stay need not be looked at again
            part.release() if whole else part.close()
        code, why = self.comm.allgather_object((code, why))[0]
        if self.comm.is_server:
            self._record_end(cell, why)
        return code

    def _record_end(self, cell: Cell, why: str) -> None:
        """Notes how a cell ended; `why` it could not be run, or is not to be run again."""
        state = self.store.progress(cell).state
        if state == "running":  # another job was faster
            return
        self.store.clear_starts(cell)
        if state == "finished" and not self.keep:
            self.store.drop_checkpoints(cell)
        if why and state != "finished":
            self._record_problem(cell, f"hpcfl: {why}")

    def _run_federation(self, comm: Communicator, cell: Cell, seen: CellProgress) -> int:
        checked: RunPlan | Exception
        assert cell.config is not None
        try:
            checked = plan_run(cell.config)
        except BadInput as problem:
            checked = problem
        hooks = RunHooks(
            self._display,
            lambda: self.signals.received,
            self.started,
            on_start=lambda: self.store.count_start(cell, seen.rounds),
            log_attributes=log_attributes(self.study, cell),
        )
        return run_federation(comm, checked, self.store.log(cell), seen.state == "diverged", hooks)

    def _display(self, rounds: int) -> ProgressLines:
        chosen = choose_display(rounds, self.launcher)
        return QuietProgress(rounds) if type(chosen) is ProgressLines else chosen

    def _record_problem(self, cell: Cell, text: str) -> None:
        self.problems.append(cell.name)
        print_line(text)

    def _report(self, early: bool) -> None:
        """Merges what there is, and says how far the study has come."""
        where = "not merged yet"
        try:
            if not early:  # then there may be no time for it
                where = f"merged: {write_results(self.study, self.store)}"
        except (BadInput, OSError) as error:
            where = f"not merged ({error}), the cells' logs are whole"
        states = [self.store.progress(cell).state for cell in self.study.cells]
        print_line(
            f"hpcfl: {self.study.title}: {plural(len(states), 'cell')}, {count_states(states)}; {where}"
        )
        if early:
            print_line("hpcfl: stopped early; the same command goes on")
