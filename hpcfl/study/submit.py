"""`hpcfl study submit`: the missing cells as arrays of Slurm, packed by the time they will take."""

from __future__ import annotations

import heapq
import math
import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.study.cells import Cell
from hpcfl.study.estimate import Estimate
from hpcfl.study.run_store import RunStore, count_states
from hpcfl.study.study_file import Study, read_study
from hpcfl.utils.files import move_into_place, part_file
from hpcfl.utils.formatting import format_duration, plural, print_line

RESERVE = 1.5
"""A task's walltime ÷ what it is expected to take; one that is still too short is queued again."""
SHORTEST = 10 * 60.0
"""Seconds of the shortest walltime: jobs are warned two minutes before their end."""
LARGEST = 1000
"""Tasks of an array: Slurm's own default limit is 1001."""


@dataclass(frozen=True)
class Task:
    """Cells that run one after another in one job."""

    cells: tuple[Cell, ...]
    seconds: float


@dataclass(frozen=True)
class Array:
    """Tasks on the same number of ranks, each with the same number of threads."""

    ranks: int
    threads: int
    tasks: tuple[Task, ...]

    @property
    def longest(self) -> float:
        return max(task.seconds for task in self.tasks)

    def minutes(self, most: float) -> int:
        """Returns the walltime of each task: at most so many seconds, but not less than the shortest."""
        return math.ceil(max(SHORTEST, min(most, RESERVE * self.longest)) / 60)

    def __str__(self) -> str:
        cells, seconds = sum(len(task.cells) for task in self.tasks), sum(task.seconds for task in self.tasks)
        cost = seconds * self.ranks * self.threads / 3600
        return (
            f"{plural(cells, 'cell')} in {plural(len(self.tasks), 'task')} of up to {format_duration(self.longest)} "
            f"on {plural(self.ranks, 'rank')}, about {cost:.2f} core hours"
        )


def pack(cells: Sequence[Cell], seconds: Sequence[float], limit: float) -> tuple[Task, ...]:
    """Returns tasks of at most `limit` seconds, the longest first; a cell that takes longer is alone.

    The longest cells are dealt first, each to the shortest task. Within a task cells keep their order.
    """
    fewest = math.ceil(sum(min(s, limit) for s in seconds) / limit)
    heap = [(0.0, task) for task in range(max(1, min(len(cells), LARGEST, fewest)))]
    mine: list[list[int]] = [[] for _ in heap]
    for at in sorted(range(len(cells)), key=lambda at: (-seconds[at], at)):
        load, task = heap[0]
        if mine[task] and load + seconds[at] > limit and len(mine) < LARGEST:
            load, task = 0.0, len(mine)
            mine.append([])
            heapq.heappush(heap, (load, task))
        mine[task].append(at)
        heapq.heapreplace(heap, (load + seconds[at], task))
    tasks = [Task(tuple(cells[at] for at in sorted(each)), sum(seconds[at] for at in each)) for each in mine]
    return tuple(sorted(tasks, key=lambda task: -task.seconds))


def arrays(cells: Sequence[Cell], seconds: Sequence[float], ranks: int, limit: float) -> list[Array]:
    """Returns an array for every number of ranks and threads that cells ask for; others get `ranks`."""
    shared: dict[tuple[int, int], list[int]] = {}
    for at, cell in enumerate(cells):
        assert cell.config is not None
        shared.setdefault((cell.ranks or ranks, cell.config.runtime.threads), []).append(at)
    return [
        Array(*both, pack([cells[at] for at in mine], [seconds[at] for at in mine], limit))
        for both, mine in shared.items()
    ]


def submit_study(
    path: str,
    scale: str,
    settings: Sequence[str],
    out: str | None,
    ranks: int,
    hours: float,
    retry: bool,
    script: str | None,
    dry_run: bool,
    options: Sequence[str],
) -> int:
    """Writes the tasks of each array to a file, submits it, and returns the exit code."""
    if options and not options[0].startswith("-"):
        raise BadInput(f"{options[0]}: one study at a time; options of sbatch follow --")
    study = read_study(path, scale, settings)
    store, job, most = RunStore(study.place(out)), _script(script), 3600 * hours
    common = ["study", "run", path, "--scale", scale, "--out", str(store.path)]
    common += [f"--set={setting}" for setting in settings]
    if broken := [word for word in common if "\n" in word]:
        raise BadInput(f"{broken[0]!r} has a line break, and a task is one line")
    cells, seconds = _missing(study, store, ranks, retry)
    stamp, logs = time.strftime("%Y%m%d-%H%M%S"), str(store.jobs).replace("%", "%%")
    for array in arrays(cells, seconds, ranks, most / RESERVE):
        tasks = store.jobs / f"{stamp}-{array.ranks}x{array.threads}.txt"
        lines = [shlex.join([*common, *(f"--cell={c.name}" for c in task.cells)]) for task in array.tasks]
        command = [
            *("sbatch", f"--array=1-{len(lines)}", f"--job-name={study.slug}", f"--output={logs}/%A_%a.log"),
            *(f"--ntasks={array.ranks}", f"--cpus-per-task={array.threads}", f"--time={array.minutes(most)}"),
            *(*options, str(job), str(tasks)),
        ]
        print_line(f"{array}\n{shlex.join(command)}")
        if dry_run:
            print_line("\n".join(f"  {line}" for line in lines))
            continue
        again = {
            cell.name: (cell, store.clear_failure(cell))
            for cell in (cell for task in array.tasks for cell in task.cells if retry)
            if store.progress(cell).state == "failed"
        }
        try:
            _send(tasks, lines, command)
        except BadInput:
            for cell, said in again.values():
                store.mark_failed(cell, said or "not submitted again")
            raise
    return 0


def _script(given: str | None) -> Path:
    """Returns the job script; what it reads must be where jobs will look for it."""
    folder = Path(os.environ.get("HPCFL_JOBS", "jobs"))
    if given and not Path(given).is_file():
        raise BadInput(f"--script {given}: no such file")
    script = Path(given) if given else folder / "study.sbatch"
    for each in (script, folder / "lib.sh"):
        if not each.is_file():
            raise BadInput(
                f"{each} is not there: submit from the repository's directory, "
                "or set HPCFL_JOBS to the full path of its jobs/"
            )
    return script


def _missing(study: Study, store: RunStore, ranks: int, retry: bool) -> tuple[list[Cell], list[float]]:
    """Returns the cells that are neither over nor running, and their seconds; says what is left out."""
    seen = [store.progress(cell) for cell in study.cells]
    print_line(f"{study.title}: {plural(len(seen), 'cell')}, {count_states(each.state for each in seen)}")
    for state in ("bad", "diverged", "failed"):
        among = [(cell, each) for cell, each in zip(study.cells, seen, strict=True) if each.state == state]
        if among and not (retry and state == "failed"):
            cell, first = among[0]
            print_line(f"{plural(len(among), 'cell')} {state}, left out, as {cell.name}: {first.reason}")
    if retry:
        seen = [replace(each, state="waiting") if each.state == "failed" else each for each in seen]
    estimate = Estimate(study.cells, seen, ranks)
    todo = [at for at, each in enumerate(seen) if not each.is_over and each.state != "running"]
    impossible, problem = estimate.cannot_run(todo)
    if impossible == todo != []:
        raise BadInput(problem)
    if impossible or not todo:
        print_line(problem or "nothing to submit")
    todo = sorted(set(todo) - set(impossible))
    # what was killed before comes last, so that it does not keep the others waiting again
    todo.sort(key=lambda at: store.was_interrupted(study.cells[at]))
    return [study.cells[at] for at in todo], [estimate.left(at) for at in todo]


def _send(tasks: Path, lines: Sequence[str], command: Sequence[str]) -> None:
    try:
        tasks.parent.mkdir(parents=True, exist_ok=True)
        with part_file(tasks) as part:
            part.write_text("".join(f"{line}\n" for line in lines))
            move_into_place(part, tasks)
    except OSError as error:
        raise BadInput(f"cannot write {tasks}: {error.strerror}") from None
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        problem = f"sbatch refused it: {' '.join(done.stderr.split())}" if done.returncode else ""
    except OSError as error:
        problem = f"cannot start sbatch: {error.strerror}; --dry-run only prints"
    if problem:
        tasks.unlink()
        raise BadInput(problem)
    print_line(done.stdout.strip())
