"""The array's job script without a batch system: which line it runs, and how it goes on after a failure."""

from __future__ import annotations

import signal
import time

import pytest

from tests.helpers.jobs import JOBS, Job, await_ready

# the first $FAILS calls leave a mark of a cell of their own, or of one whose $NAME is given, and end with 1
FAILING = """#!/bin/bash
echo "hpcfl $*" >>calls
echo "restarts $HPCFL_RESTARTS" >>calls
n=$(grep -c ^hpcfl calls)
[ -z "$WAITS" ] || { trap 'caught=1' USR1 TERM; touch ready; until [ -n "$caught" ]; do sleep 0.05; done; }
[ "$n" -gt "$FAILS" ] && exit $CODE
mkdir -p 'my runs/failed'
echo why >"my runs/failed/${NAME:-cell$n}.txt"
exit 1
"""
LINE = "study run s.toml --out 'my runs'"


@pytest.fixture
def failing(job: Job) -> Job:
    (job.place / "bin" / "hpcfl").write_text(FAILING)
    (job.place / "tasks").write_text(f"{LINE}\n{LINE} --cell=cell1 --cell=cell2\n")
    return job


def test_a_task_runs_its_line(job: Job):
    (job.place / "cells").write_text(
        "train --set seed=1\nstudy run --set \"models.list=['a', 'b']\" --out $(touch x).h5\n# no\n"
    )
    assert job.run("study.sbatch", "cells", CODE="75")[0] == 75
    assert job.calls("hpcfl") == [
        "hpcfl 1: <study><run><--set><models.list=['a', 'b']><--out><$(touch><x).h5>"
    ]
    assert job.calls("scontrol") == ["scontrol requeue 9_2"]  # 9 alone is the whole array
    assert job.run("study.sbatch", "cells", SLURM_ARRAY_TASK_ID="3", CODE="1")[0] == 0
    assert len(job.calls("hpcfl")) == 1


def test_a_task_of_pbs_comes_back_as_a_job_of_its_own(job: Job):
    (job.place / "cells").write_text("a.toml\nb.toml\n")
    assert job.run("study.pbs", HPCFL_TASKS="cells", CODE="75")[0] == 75
    (call,) = job.calls("qsub")
    assert call.endswith("jobs/study.pbs restarts=1 task=2")
    alone = {"PBS_ARRAY_INDEX": "", "HPCFL_TASK": "2", "HPCFL_RESTARTS": "1"}
    assert job.run("study.pbs", HPCFL_TASKS="cells", **alone)[0] == 0
    assert job.calls("hpcfl") == ["hpcfl 1: <train><b.toml>"] * 2


def test_a_task_of_lsf_is_queued_again_by_its_code_and_counts_alone(job: Job):
    (job.place / "cells").write_text("a.toml\nb.toml\n")
    assert "#BSUB -Q 75\n" in (JOBS / "study.lsf").read_text()
    lives = {"HPCFL_TASKS": "cells", "HPCFL_MAX_RESTARTS": "1", "CODE": "75"}
    assert [job.run("study.lsf", **lives)[0] for _ in range(2)] == [75, 1]
    assert job.run("study.lsf", **lives, LSB_JOBINDEX="1")[0] == 75
    assert job.calls("hpcfl") == [f"hpcfl 1: <train><{name}.toml>" for name in "bba"]


@pytest.mark.parametrize("script", ["study.pbs", "study.lsf"])
def test_a_failed_cell_is_passed_over_by_all_systems(failing: Job, script: str):
    code, said = failing.run(script, FAILS="1", HPCFL_TASKS="tasks")
    assert (code, len(failing.calls("hpcfl")), said.count("going on with the others")) == (0, 2, 1)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("--set seed=1 --out a.h5", ["hpcfl 1: <train><--set><seed=1><--out><a.h5>"]),
        ("a.toml --out a.h5", ["hpcfl 1: <train><a.toml><--out><a.h5>"]),
        ("train a.toml", ["hpcfl 1: <train><a.toml>"]),
        ("a.toml --out '' ''", ["hpcfl 1: <train><a.toml><--out><><>"]),
        ("''", ["hpcfl 1: <train><>"]),
        ("# it's a comment", []),
        ("   ", []),
        ("", []),
    ],
)
def test_a_line_is_of_train_unless_it_says_study(job: Job, line: str, want: list[str]):
    (job.place / "cells").write_text(f"\n{line}\n")
    assert job.run("study.sbatch", "cells")[0] == 0
    assert job.calls("hpcfl") == want
    assert not (job.place / "a.h5").exists(), "only studies have marks"


@pytest.mark.parametrize("launcher", ["pmi2", "mpirun"])
def test_a_failed_cell_is_passed_over_in_the_same_job(failing: Job, launcher: str):
    code, said = failing.run("study.sbatch", "tasks", FAILS="1", HPCFL_MPI=launcher)
    assert (code, len(failing.calls("hpcfl"))) == (0, 2)
    assert said.count("a cell of the study failed; going on with the others") == 1
    assert failing.run("study.sbatch", "tasks", FAILS="0", CODE="1")[0] == 1
    assert len(failing.calls("hpcfl")) == 3, "no new mark"
    assert failing.calls("restarts") == ["restarts 0", "restarts 1", "restarts 0"], "where --retry counts"
    assert [path.name for path in (failing.place / "my runs/failed").iterdir()] == ["cell1.txt"]


def test_several_may_fail_one_after_the_other(failing: Job):
    task = {"SLURM_ARRAY_TASK_ID": "1"}  # all cells of the study
    code, said = failing.run("study.sbatch", "tasks", FAILS="4", CODE="75", **task)
    assert (code, len(failing.calls("hpcfl")), said.count("going on")) == (75, 5, 4)
    assert failing.calls("scontrol") == ["scontrol requeue 9_1"]


def test_it_ends_where_no_further_cell_fails(failing: Job):
    assert failing.run("study.sbatch", "tasks", FAILS="9")[0] == 1
    assert len(failing.calls("hpcfl")) == 3, "cell3 is none of this task"


def test_a_cell_that_fails_again_and_again_does_not_go_on_for_ever(failing: Job):
    (failing.place / "tasks").write_text(f"\n{LINE} --retry\n")
    assert failing.run("study.sbatch", "tasks", FAILS="9", NAME="same")[0] == 1
    assert len(failing.calls("hpcfl")) == 2


def test_the_directory_may_be_given_in_one_word(failing: Job):
    (failing.place / "tasks").write_text("\nstudy run s.toml '--out=my runs'\n")
    assert failing.run("study.sbatch", "tasks", FAILS="1")[0] == 0
    assert len(failing.calls("hpcfl")) == 2


@pytest.mark.parametrize(
    ("number", "code", "requeued"), [(signal.SIGUSR1, 75, 1), (signal.SIGTERM, 1, 0)], ids=["warned", "ended"]
)
def test_a_cell_that_fails_shortly_before_the_end(failing: Job, number: int, code: int, requeued: int):
    """Of a job that was warned the next life goes on; one that is being ended starts nothing more."""
    waiting = {"FAILS": "1", "WAITS": "1", "HPCFL_MPI": "mpirun"}
    with failing.start("study.sbatch", "tasks", **waiting) as process:
        await_ready(failing)
        process.send_signal(number)
        if number == signal.SIGTERM:  # of the stand-ins only USR1 is passed on
            time.sleep(0.2)
            process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=20)
    assert (process.returncode, len(failing.calls("hpcfl"))) == (code, 1)
    assert len(failing.calls("scontrol")) == requeued


def test_lives_count_the_steps_of_failed_cells(failing: Job):
    assert failing.run("study.sbatch", "tasks", FAILS="1")[0] == 0
    assert len(failing.calls("srun")) == 2, "the first life needs no empty steps"
    (failing.place / "calls").unlink()
    assert failing.run("study.sbatch", "tasks", FAILS="0", SLURM_RESTART_COUNT="2")[0] == 0
    assert failing.calls("srun")[:-1] == ["srun --nodes=1 --ntasks=1 bash -c true"] * 3
