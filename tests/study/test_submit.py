"""Missing cells are packed into tasks, each of which is one line that a job reads back."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.config.schema import Config
from hpcfl.study.cells import Cell
from hpcfl.study.run import run_study
from hpcfl.study.run_store import RunStore
from hpcfl.study.submit import MAX_TASKS, MIN_SECONDS, RESERVE, ArrayTask, JobArray, arrays, pack
from tests.helpers.jobs import Job
from tests.helpers.mpi import ROOT

CONFIG = Config()
THREADS = CONFIG.model_copy(update={"runtime": CONFIG.runtime.model_copy(update={"threads": 4})})
TIMES = st.lists(st.floats(0.1, 1e5), min_size=1, max_size=60)
STUDY = """
[set]
data.samples_per_class = 60
federation.rounds = 2
federation.clients = 4
models.features = 4
partition.alpha = 10.0
[[block]]
name = "a"
[block.grid]
seed = [0, 1, 2]
[[block]]
name = "b"
cells = [{ ranks = 3 }]
"""


def cell(i: int, ranks: int | None = None, config: Config = CONFIG) -> Cell:
    return Cell(f"a-s{i}", "a", {"seed": i}, {}, ranks, config)


def numbers(task: ArrayTask) -> list[int]:
    return [each.values["seed"] for each in task.cells]


@given(TIMES, st.floats(1, 1e4))
def test_every_cell_is_packed_once(seconds: list[float], limit: float):
    tasks = pack([cell(i) for i in range(len(seconds))], seconds, limit)
    assert sorted(i for task in tasks for i in numbers(task)) == list(range(len(seconds)))
    assert all(task.cells for task in tasks)
    assert [task.seconds for task in tasks] == sorted((task.seconds for task in tasks), reverse=True)
    for task in tasks:
        assert numbers(task) == sorted(numbers(task)), "cells keep their order"
        assert task.seconds == pytest.approx(sum(seconds[i] for i in numbers(task)))
        assert task.seconds <= limit * (1 + 1e-9) or len(task.cells) == 1


@given(TIMES, st.floats(1, 1e4))
def test_long_cells_are_alone_and_tasks_few_and_alike(seconds: list[float], limit: float):
    tasks = pack([cell(i) for i in range(len(seconds))], seconds, limit)
    for task in tasks:
        if max(seconds[i] for i in numbers(task)) >= limit:
            assert len(task.cells) == 1
    short = [s for s in seconds if s < limit]
    several = [task.seconds for task in tasks if task.seconds < limit]
    assert len(several) <= 2 * math.ceil(sum(short) / limit) + 1
    if len(several) > 1:
        assert max(several) - min(several) <= max(max(short), limit / 2)


def test_equal_cells_are_dealt_evenly():
    """60 cells of 10 s in tasks of 200 s: three tasks, the first with every third cell."""
    tasks = pack([cell(i) for i in range(60)], [10.0] * 60, 200.0)
    assert [len(task.cells) for task in tasks] == [20, 20, 20]
    assert numbers(tasks[0]) == list(range(0, 60, 3))


def test_an_array_is_never_too_large():
    tasks = pack([cell(i) for i in range(MAX_TASKS + 500)], [100.0] * (MAX_TASKS + 500), 100.0)
    assert len(tasks) == MAX_TASKS
    assert max(len(task.cells) for task in tasks) == 2


def test_ranks_and_threads_have_arrays_of_their_own():
    made = [cell(0), cell(1, ranks=3), cell(2), cell(3, ranks=21), cell(4, config=THREADS), cell(5, ranks=3)]
    found = arrays(made, [1.0] * 6, 21, 100.0)
    assert [(array.ranks, array.threads, [numbers(task) for task in array.tasks]) for array in found] == [
        (21, 1, [[0, 2, 3]]),
        (3, 1, [[1, 5]]),
        (21, 4, [[4]]),
    ]


def test_the_walltime_has_a_reserve_and_a_limit():
    array = JobArray(5, 2, (ArrayTask((cell(0),), 3600.0), ArrayTask((cell(1), cell(2)), 1800.0)))
    assert array.minutes(1e9) == 60 * RESERVE
    assert array.minutes(3000.0) == 50, "what takes longer is queued again"
    assert JobArray(5, 1, (ArrayTask((cell(0),), 1.0),)).minutes(1e9) == MIN_SECONDS / 60
    assert str(array) == "3 cells in 2 tasks of up to 1 h 0 min on 5 ranks, about 15.00 core hours"


WORDS = 'SLURM_JOB_ID=1 SLURM_JOB_END_TIME=1; source "$0"; words "$1"; printf "%s\\0" "${words[@]}"'


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), min_size=1)),
    st.text("ab'\"\\$`#%*&|;<>~ \t=", min_size=1),
)
def test_a_job_reads_back_what_was_written(odd: list[str], odder: str):
    want = ["study", "run", *odd, f"--set=data.root='{odder}'", "--cell=a"]
    done = subprocess.run(
        ["bash", "-c", WORDS, ROOT / "jobs" / "lib.sh", shlex.join(want)], capture_output=True, check=True
    )
    assert done.stdout.decode().split("\0")[:-1] == want


class Desk:
    """A directory with a study, jobs/ and a stand-in for sbatch, in which hpcfl runs."""

    def __init__(self, place: Path, hpcfl: Callable[..., Result]):
        self.place, self.hpcfl = place, hpcfl
        (place / "my study.toml").write_text(STUDY)
        (place / "jobs").symlink_to(ROOT / "jobs")
        (place / "bin").mkdir()
        self.sbatch('printf "%s\\0" "$@" >>asked; echo "Submitted batch job 7"')

    def sbatch(self, text: str) -> None:
        (self.place / "bin" / "sbatch").write_text(f"#!/bin/bash\n{text}\n")
        (self.place / "bin" / "sbatch").chmod(0o755)

    def submit(self, *arguments: str, code: int = 0) -> str:
        done = self.hpcfl("study", "submit", "my study.toml", *arguments)
        assert done.exit_code == code, done.output
        return done.output

    @property
    def asked(self) -> list[list[str]]:
        """The arguments of each call of sbatch."""
        path = self.place / "asked"
        words = path.read_text().split("\0")[:-1] if path.exists() else []
        ends = [i + 1 for i, word in enumerate(words) if word.endswith(".txt")]
        return [words[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.fixture
def desk(tmp_path: Path, hpcfl: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Desk(tmp_path, hpcfl)


def test_submitted_as_it_says(desk: Desk):
    said = desk.submit("-n5", "--hours", "2", "--", "--account=me", "--time=7")
    first, second = desk.asked
    assert first[:6] == [
        *("--array=1-1", "--job-name=my study", "--output=runs/my study/jobs/%A_%a.log", "--ntasks=5"),
        *("--cpus-per-task=1", "--time=10"),
    ]
    assert first[6:-1] == ["--account=me", "--time=7", "jobs/study.sbatch"], "the user's come after ours"
    assert "--ntasks=3" in second
    (line,) = Path(first[-1]).read_text().splitlines()
    assert shlex.split(line) == [
        *("study", "run", "my study.toml", "--scale", "full", "--out", "runs/my study"),
        *("--cell=a-s0", "--cell=a-s1", "--cell=a-s2"),
    ]
    assert said.splitlines() == [
        "my study: 4 cells, 4 waiting",
        "3 cells in 1 task of up to 6 s on 5 ranks, about 0.01 core hours",
        shlex.join(["sbatch", *first]),
        "Submitted batch job 7",
        "1 cell in 1 task of up to 2 s on 3 ranks, about 0.00 core hours",
        shlex.join(["sbatch", *second]),
        "Submitted batch job 7",
    ]


def test_a_dry_run_prints_and_leaves_nothing(desk: Desk):
    said = desk.submit("--dry-run")
    assert (said.count("sbatch --array"), said.count("  study run 'my study.toml'")) == (2, 2)
    assert not desk.asked
    assert not (desk.place / "runs").exists()


def test_two_submissions_in_one_second_are_two(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    strftime = time.strftime
    monkeypatch.setattr(time, "strftime", lambda text, *_: strftime(text, time.gmtime(0)))
    desk.submit("--set=train.lr=0.1")
    desk.submit("--set=train.lr=0.2")
    files = [Path(call[-1]) for call in desk.asked]
    assert len(set(files)) == 4
    assert [("lr=0.1" in file.read_text(), "lr=0.2" in file.read_text()) for file in files] == [
        *((True, False), (True, False)),
        *((False, True), (False, True)),
    ]


def test_a_directory_of_another_study_is_refused(desk: Desk):
    desk.submit("--out=there")
    (desk.place / "other.toml").write_text(STUDY)
    done = desk.hpcfl("study", "submit", "other.toml", "--out=there", "--dry-run")
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: there is the directory of the study my study; choose another --out\n",
    )


def test_the_job_gets_the_settings_as_they_were_given(desk: Desk, tmp_path_factory: pytest.TempPathFactory):
    odd = ["models.list=['mlp_64', 'mlp_256']", "data.root='it''s \"$HOME\" \\ #1'", "seed=4"]
    desk.submit("--out", "a dir/it's", *(f"--set={each}" for each in odd))
    job = Job(tmp_path_factory.mktemp("job"))
    (job.place / "bin" / "hpcfl").write_text('#!/bin/bash\nprintf "%s\\0" "$@" >args\n')
    tasks = desk.place / desk.asked[0][-1]
    assert job.run("study.sbatch", str(tasks), SLURM_ARRAY_TASK_ID="1")[0] == 0
    got = (job.place / "args").read_text().split("\0")[:-1]
    assert [word.removeprefix("--set=") for word in got if word.startswith("--set=")] == odd
    assert got[got.index("--out") + 1] == "a dir/it's"
    assert got[-1] == "--cell=a-s4"


def test_finished_and_failed_cells_are_left_out(desk: Desk):
    names = ["a-s0", "a-s1", "a-s2", "b-r3"]
    assert run_study("my study.toml", "full", [], None, names[:2], False) == 0
    store = RunStore(Path("runs/my study"))
    marked = Cell(names[2], "a", {}, {}, None, CONFIG)
    store.mark_failed(marked, "rank 1\nTraceback\nZeroDivisionError: by hand")
    assert "2 finished, 1 failed, 1 waiting" in desk.submit()
    assert [call[3] for call in desk.asked] == ["--ntasks=3"]
    assert "1 cell in 1 task" in desk.submit("--retry", "--dry-run", "-n9").splitlines()[1]
    assert store.progress(marked).state == "failed", "--dry-run changes nothing"
    desk.submit("--retry", "-n9")
    assert [call[3] for call in desk.asked] == ["--ntasks=3", "--ntasks=9", "--ntasks=3"]
    assert store.progress(marked).state == "waiting"


def test_nothing_to_submit(desk: Desk):
    run_study("my study.toml", "full", [], None, ["a-s0", "a-s1", "a-s2"], False)
    RunStore(Path("runs/my study")).mark_failed(Cell("b-r3", "b", {}, {}, 3, CONFIG), "MemoryError")
    said = desk.submit()
    assert said.splitlines() == [
        "my study: 4 cells, 3 finished, 1 failed",
        "1 cell failed, left out, as b-r3: MemoryError",
        "nothing to submit",
    ]
    assert not desk.asked


def test_what_was_killed_before_comes_last(desk: Desk):
    RunStore(Path("runs/my study")).make()
    RunStore(Path("runs/my study")).count_start(Cell("a-s0", "a", {}, {}, None, CONFIG), 0)
    assert "--cell=a-s1 --cell=a-s2 --cell=a-s0\n" in desk.submit("--dry-run")


def one_sentence(said: str) -> str:
    line = said.splitlines()[-1]
    assert line.startswith("hpcfl: ")
    assert "Traceback" not in said
    return line.removeprefix("hpcfl: ")


def test_bad_input_is_one_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    want = "data.name = 'cifar100': not prepared in data"
    assert want in one_sentence(desk.submit("--set=data.name='cifar100'", code=2))
    assert "has a line break" in one_sentence(desk.submit("--set=data.root='a\nb'", code=2))
    assert one_sentence(desk.submit("--script=none", code=2)) == "--script none: no such file"
    assert "one study at a time" in one_sentence(desk.submit("other.toml", code=2))
    (desk.place / "runs").write_text("a file")
    assert one_sentence(desk.submit(code=2)).startswith("cannot write runs/my study")
    (desk.place / "jobs").unlink()
    (desk.place / "jobs").mkdir()
    assert one_sentence(desk.submit(code=2)).startswith("jobs/study.sbatch is not there: submit from")
    monkeypatch.setenv("HPCFL_JOBS", str(ROOT / "jobs"))
    (desk.place / "runs").unlink()
    assert str(ROOT / "jobs" / "study.sbatch") in desk.submit()


def test_sbatch_that_refuses_or_is_missing(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    desk.sbatch('echo "sbatch: error: Batch job submission failed:\n Invalid account" >&2; exit 1')
    store, marked = RunStore(Path("runs/my study")), Cell("a-s2", "a", {}, {}, None, CONFIG)
    store.make()
    store.mark_failed(marked, "ZeroDivisionError: by hand")
    said = one_sentence(desk.submit("--retry", code=2))
    assert store.progress(marked).reason == "ZeroDivisionError: by hand", "the mark is there again"
    assert said == "sbatch refused it: sbatch: error: Batch job submission failed: Invalid account"
    monkeypatch.setenv("PATH", "/nowhere")
    assert one_sentence(desk.submit(code=2)) == (
        "cannot start sbatch: No such file or directory; --dry-run only prints"
    )
    assert not list((desk.place / "runs/my study/jobs").iterdir()), "no tasks of jobs that are not there"


def test_status_where_data_is_not_prepared(desk: Desk):
    done = desk.hpcfl("study", "status", "my study.toml", "--set=data.name='cifar100'")
    assert done.exit_code == 0
    assert "my study: 4 cells, 4 waiting\n" in done.output
    assert "4 cells cannot be run here, as a-s0: data.name = 'cifar100': not prepared" in done.output
