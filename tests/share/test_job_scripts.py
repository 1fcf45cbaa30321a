"""The job scripts without the repository: copied by `hpcfl jobs`, or found in the package."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hpcfl.share.job_scripts import SHIPPED
from tests.helpers.jobs import Job

FILES = sorted(path.name for path in SHIPPED.iterdir())
# runs the first task at once, from a copy of the script as Slurm does
SBATCH = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
cp "$1" spooled
export SLURM_JOB_ID=9 SLURM_NTASKS=3 SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID=1 SLURM_SUBMIT_DIR=$PWD
bash spooled "$2"
echo ended with $?
"""


def test_copied_once_and_never_over_a_file_that_differs(hpcfl):
    done = hpcfl("jobs")
    assert (done.exit_code, done.output) == (0, "8 files copied to jobs; jobs/README.md says how to submit\n")
    assert {path.name: path.read_bytes() for path in Path("jobs").iterdir()} == {
        name: (SHIPPED / name).read_bytes() for name in FILES
    }
    Path("jobs/lib.sh").unlink()
    assert hpcfl("jobs").output.startswith("1 file copied to jobs; ")
    assert hpcfl("jobs").output.startswith("jobs has all files already; ")
    Path("jobs/train.sbatch").write_text("mine")
    Path("jobs/lib.sh").unlink()
    refused = hpcfl("jobs")
    assert refused.exit_code == 2
    assert refused.output == (
        "hpcfl: jobs/train.sbatch differs from the shipped one: move it away, or name another directory\n"
    )
    assert Path("jobs/train.sbatch").read_text() == "mine"
    assert not Path("jobs/lib.sh").exists(), "all or none"


def test_another_directory_is_named_to_the_jobs(hpcfl, tmp_path):
    done = hpcfl("jobs", "a/b")
    assert done.output.splitlines()[1] == f"set HPCFL_JOBS={tmp_path}/a/b where you submit"
    assert sorted(path.name for path in Path("a/b").iterdir()) == FILES


def test_the_printed_setting_is_quoted_for_a_shell(hpcfl, tmp_path):
    done = hpcfl("jobs", "a; touch b")
    assert done.output.splitlines()[1] == f"set HPCFL_JOBS='{tmp_path}/a; touch b' where you submit"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_is_left_alone(tmp_path, kind):
    """A link to a file that is not there, or a pipe: in a child process, as a wait for it would not end."""
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs" / "lib.sh"
    path.symlink_to("../bashrc") if kind == "link" else os.mkfifo(path)
    command = [sys.executable, "-m", "hpcfl", "jobs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("hpcfl: jobs/lib.sh differs from the shipped one: ")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["jobs", "lib.sh"]


def test_a_directory_that_cannot_be_made_is_one_sentence(hpcfl):
    Path("jobs").write_text("a file")
    done = hpcfl("jobs")
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert done.output.startswith("hpcfl: cannot write jobs")


def test_a_copied_script_runs_from_above_its_directory(hpcfl, tmp_path):
    hpcfl("jobs")
    job = Job(tmp_path)
    for script, call in {
        "train.sbatch": "hpcfl 1: <train><fedtgp>",
        "train.pbs": "hpcfl 1: <train>",
        "train.lsf": "hpcfl 1: <train>",
    }.items():
        assert job.run(script, *(["fedtgp"] if "fedtgp" in call else []), HPCFL_JOBS="") == (
            0,
            f"hpcfl job: start 1: hpcfl {' '.join(call.split('<', 1)[1].rstrip('>').split('><'))}\n",
        )
        assert job.calls("hpcfl")[-1] == call


def test_submit_needs_no_copy(hpcfl, tmp_path, monkeypatch):
    """A task finds lib.sh although Slurm gave it a copy of the script, and ./jobs is not there."""
    job = Job(tmp_path)
    (tmp_path / "bin" / "sbatch").write_text(SBATCH)
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("CODE", "0")
    said = hpcfl("study", "submit", "heterogeneity", "--scale", "small", "-n3").output
    assert said.splitlines()[-1] == "ended with 0", said
    (call,) = job.calls("hpcfl")
    assert call.startswith(
        "hpcfl 1: <study><run><heterogeneity><--scale><small><--out><runs/heterogeneity-small><--cell="
    )
    printed = shlex.split(said.splitlines()[2])
    assert printed[:2] == [f"HPCFL_JOBS={SHIPPED}", "sbatch"]
    assert str(SHIPPED / "study.sbatch") in printed


def test_a_jobs_directory_goes_before_the_package(hpcfl):
    hpcfl("jobs")
    said = hpcfl("study", "submit", "heterogeneity", "--scale", "small", "--dry-run").output.splitlines()[2]
    assert said.startswith("sbatch ")
    assert " jobs/study.sbatch " in said
    Path("jobs/lib.sh").unlink()
    done = hpcfl("study", "submit", "heterogeneity", "--scale", "small", "--dry-run")
    assert done.exit_code == 2
    assert done.output == (
        "hpcfl: jobs/lib.sh is not there: submit from the directory above jobs/, set HPCFL_JOBS to its full "
        "path, or let hpcfl jobs copy the scripts\n"
    )


def test_an_end_that_slurm_does_not_say_is_no_end(tmp_path):
    """`date -d ""` is last midnight: with that end a run would stop before its first round."""
    answers = {"exit 1": "", "echo": "", "echo N/A": "", "echo 2030-01-01T00:00:00": "1893456000"}
    for answer, want in answers.items():
        (tmp_path / "squeue").write_text(f"#!/bin/bash\n{answer}\n")
        (tmp_path / "squeue").chmod(0o755)
        text = f'source {SHIPPED}/lib.sh; echo "<$SLURM_JOB_END_TIME>"'
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "TZ": "UTC"}
        done = subprocess.run(["bash", "-c", text], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout == f"<{want}>\n"
