"""`hpcfl study submit`: submits the missing cells as Slurm job arrays, packed by their estimated time."""

from __future__ import annotations

import heapq
import math
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcfl.errors import BadInput
from hpcfl.share.job_scripts import SHIPPED, find_jobs
from hpcfl.study.cells import Cell
from hpcfl.study.directory_owner import check_directory_owner, claim_directory
from hpcfl.study.estimate import Estimate
from hpcfl.study.run_store import RunStore, count_states
from hpcfl.study.study_file import Study, read_study
from hpcfl.utils.files import write_atomically
from hpcfl.utils.formatting import format_duration, plural, print_line

RESERVE = 1.5
"""Walltime of a task ÷ its estimated time; a task that still runs out of time is requeued."""
MIN_SECONDS = 10 * 60.0
"""Shortest walltime in seconds; jobs get a signal two minutes before their end."""
MAX_TASKS = 1000
"""Maximum number of tasks in an array; Slurm's default limit is 1001."""


@dataclass(frozen=True)
class ArrayTask:
    """Cells that run one after another in one task of an array, and their estimated seconds."""

    cells: tuple[Cell, ...]
    seconds: float


@dataclass(frozen=True)
class JobArray:
    """Tasks with the same number of ranks and of threads per rank."""

    ranks: int
    threads: int
    tasks: tuple[ArrayTask, ...]

    @property
    def longest(self) -> float:
        return max(task.seconds for task in self.tasks)

    def minutes(self, max_seconds: float) -> int:
        """Returns the walltime of each task: at most `max_seconds`, but at least MIN_SECONDS."""
        return math.ceil(max(MIN_SECONDS, min(max_seconds, RESERVE * self.longest)) / 60)

    def __str__(self) -> str:
        cells, seconds = sum(len(task.cells) for task in self.tasks), sum(task.seconds for task in self.tasks)
        cost = seconds * self.ranks * self.threads / 3600
        return (
            f"{plural(cells, 'cell')} in {plural(len(self.tasks), 'task')} of up to "
            f"{format_duration(self.longest)} on {plural(self.ranks, 'rank')}, about {cost:.2f} core hours"
        )


def pack(cells: Sequence[Cell], seconds: Sequence[float], limit: float) -> tuple[ArrayTask, ...]:
    """Returns tasks of at most `limit` seconds, the longest first; a cell that takes longer is alone.

    The longest cells are assigned first, each to the shortest task. Within a task cells keep their order.
    """
    fewest = math.ceil(sum(min(s, limit) for s in seconds) / limit)
    heap = [(0.0, task) for task in range(max(1, min(len(cells), MAX_TASKS, fewest)))]
    members: list[list[int]] = [[] for _ in heap]
    for i in sorted(range(len(cells)), key=lambda i: (-seconds[i], i)):
        load, task = heap[0]
        if members[task] and load + seconds[i] > limit and len(members) < MAX_TASKS:
            load, task = 0.0, len(members)
            members.append([])
            heapq.heappush(heap, (load, task))
        members[task].append(i)
        heapq.heapreplace(heap, (load + seconds[i], task))
    tasks = [
        ArrayTask(tuple(cells[i] for i in sorted(each)), sum(seconds[i] for i in each)) for each in members
    ]
    return tuple(sorted(tasks, key=lambda task: -task.seconds))


def arrays(cells: Sequence[Cell], seconds: Sequence[float], ranks: int, limit: float) -> list[JobArray]:
    """Returns an array for each (ranks, threads) among the cells; cells that set no ranks get `ranks`."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, cell in enumerate(cells):
        assert cell.config is not None
        groups.setdefault((cell.ranks or ranks, cell.config.runtime.threads), []).append(i)
    return [
        JobArray(ranks, threads, pack([cells[i] for i in members], [seconds[i] for i in members], limit))
        for (ranks, threads), members in groups.items()
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
    study.print_notes()
    store, folder, max_seconds = RunStore(study.directory(out)), find_jobs(), 3600 * hours
    job = _script(script, folder)
    # the job has a copy of its script, and looks for lib.sh in HPCFL_JOBS or in ./jobs
    environ = {"HPCFL_JOBS": str(folder)} if folder == SHIPPED else {}
    prefix = "".join(f"{name}={shlex.quote(value)} " for name, value in environ.items())
    common = ["study", "run", path, "--scale", scale, "--out", str(store.path)]
    common += [f"--set={setting}" for setting in settings]
    if broken := [word for word in common if "\n" in word]:
        raise BadInput(f"{broken[0]!r} has a line break, and a task is one line")
    check_directory_owner(study, store)
    cells, seconds = _missing(study, store, ranks, retry)
    if cells and not dry_run:
        claim_directory(study, store)
    # random, as two users or scripts may submit in the same second
    stamp, logs = time.strftime(f"%Y%m%d-%H%M%S-{secrets.token_hex(4)}"), str(store.jobs).replace("%", "%%")
    for array in arrays(cells, seconds, ranks, max_seconds / RESERVE):
        tasks = store.jobs / f"{stamp}-{array.ranks}x{array.threads}.txt"
        lines = [shlex.join([*common, *(f"--cell={c.name}" for c in task.cells)]) for task in array.tasks]
        command = [
            *("sbatch", f"--array=1-{len(lines)}", f"--job-name={study.slug}", f"--output={logs}/%A_%a.log"),
            *(f"--ntasks={array.ranks}", f"--cpus-per-task={array.threads}"),
            *(f"--time={array.minutes(max_seconds)}", *options, str(job), str(tasks)),
        ]
        print_line(f"{array}\n{prefix}{shlex.join(command)}")
        if dry_run:
            print_line("\n".join(f"  {line}" for line in lines))
            continue
        cleared = [
            (cell, store.clear_failure(cell))
            for cell in (cell for task in array.tasks for cell in task.cells if retry)
            if store.progress(cell).state == "failed"
        ]
        try:
            _send(tasks, lines, command, environ)
        except BadInput:
            for cell, failure in cleared:
                store.mark_failed(cell, failure or "not submitted again")
            raise
    return 0


def _script(given: str | None, folder: Path) -> Path:
    """Returns the path of the job script; it and the lib.sh that it reads must exist."""
    if given and not Path(given).is_file():
        raise BadInput(f"--script {given}: no such file")
    script = Path(given) if given else folder / "study.sbatch"
    for each in (script, folder / "lib.sh"):
        if not each.is_file():
            raise BadInput(
                f"{each} is not there: submit from the directory above jobs/, "
                "set HPCFL_JOBS to its full path, or let hpcfl jobs copy the scripts"
            )
    return script


def _missing(study: Study, store: RunStore, ranks: int, retry: bool) -> tuple[list[Cell], list[float]]:
    """Returns the cells that are neither over nor running, and their seconds; prints which are left out."""
    progress = [store.progress(cell) for cell in study.cells]
    states = count_states(each.state for each in progress)
    print_line(f"{study.title}: {plural(len(progress), 'cell')}, {states}")
    for state in ("bad", "diverged", "failed"):
        excluded = [i for i, each in enumerate(progress) if each.state == state]
        if excluded and not (retry and state == "failed"):
            name, reason = study.cells[excluded[0]].name, progress[excluded[0]].reason
            print_line(f"{plural(len(excluded), 'cell')} {state}, left out, as {name}: {reason}")
    if retry:
        progress = [replace(each, state="waiting") if each.state == "failed" else each for each in progress]
    estimate = Estimate(study.cells, progress, ranks)
    missing = [i for i, each in enumerate(progress) if not each.is_over and each.state != "running"]
    impossible, problem = estimate.cannot_run(missing)
    if impossible == missing != []:
        raise BadInput(problem)
    if impossible or not missing:
        print_line(problem or "nothing to submit")
    missing = sorted(set(missing) - set(impossible))
    # cells that were killed before come last, so that they do not delay the others again
    missing.sort(key=lambda i: store.was_interrupted(study.cells[i]))
    return [study.cells[i] for i in missing], [estimate.seconds_left(i) for i in missing]


def _send(tasks: Path, lines: Sequence[str], command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Writes the task file and runs sbatch; removes the file again if sbatch fails."""
    try:
        tasks.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(tasks, os.fsencode("".join(f"{line}\n" for line in lines)))
    except OSError as error:
        raise BadInput(f"cannot write {tasks}: {error.strerror}") from None
    try:
        done = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True)
        problem = f"sbatch refused it: {' '.join(done.stderr.split())}" if done.returncode else ""
    except OSError as error:
        problem = f"cannot start sbatch: {error.strerror}; --dry-run only prints"
    if problem:
        tasks.unlink()
        raise BadInput(problem)
    print_line(done.stdout.strip())
