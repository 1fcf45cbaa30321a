"""The job scripts without a batch system: stand-ins for its commands say what they were asked."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.jobs import JOBS, Job, await_ready
from tests.helpers.mpi import ROOT
from tests.stress.slurm.scenarios import SCENARIOS

SCRIPTS = sorted(path for path in JOBS.iterdir() if path.suffix in {".sbatch", ".pbs", ".lsf", ".sh"})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script: Path):
    subprocess.run(["bash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        command = ["shellcheck", "-x", "--exclude=SC1091,SC2154", script.name]
        done = subprocess.run(command, cwd=JOBS, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("code", "want"), [(0, 0), (1, 1), (2, 2), (137, 137)])
@pytest.mark.parametrize("script", ["train.sbatch", "train.pbs", "train.lsf"])
def test_what_cannot_continue_ends_the_job(job: Job, script: str, code: int, want: int):
    assert job.run(script, CODE=str(code))[0] == want
    assert len(job.calls("hpcfl")) == 1
    assert not job.calls("scontrol") + job.calls("qsub")
    assert not list(job.place.glob("hpcfl-*"))


def test_slurm_requeues_a_run_that_can_continue(job: Job):
    code, said = job.run("train.sbatch", "a.toml", "--set", "models.list=['a', 'b']", CODE="75")
    assert (code, job.calls("scontrol")) == (75, ["scontrol requeue 7"])
    assert job.calls("hpcfl") == ["hpcfl 1: <train><a.toml><--set><models.list=['a', 'b']>"]
    assert "queued again" in said
    (call,) = job.calls("srun")
    assert call.startswith(
        "srun --mpi=pmi2 --ntasks=3 --cpus-per-task=2 --kill-on-bad-exit=1 --cpu-bind=cores "
    )


def test_rank_0_leaves_its_code_before_others_end(tmp_path: Path):
    text = (
        "SLURM_JOB_ID=1 SLURM_JOB_END_TIME=1; source lib.sh\n"
        f'SLURM_PROCID=0 bash -c "$rank" {tmp_path}/code bash -c "sleep 1; exit 1" &\n'
        f'SLURM_PROCID=1 bash -c "$rank" {tmp_path}/code false; echo $?; cat {tmp_path}/code\n'
        f'SLURM_PROCID=1 bash -c "$rank" {tmp_path}/code bash -c "exit 75"; echo $?'
    )
    done = subprocess.run(["bash", "-c", text], cwd=JOBS, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "0"]


def test_pbs_submits_itself_anew(job: Job):
    code, _ = job.run("train.pbs", CODE="75", HPCFL_ARGS="a.toml --out 'my run.h5'", HPCFL_RESTARTS="4")
    assert (code, job.calls("qsub")) == (75, [f"qsub -V {JOBS}/train.pbs restarts=5"])
    assert job.calls("hpcfl") == ["hpcfl 1: <train><a.toml><--out><my run.h5>"]
    assert job.calls("mpirun")[0].startswith("mpirun -n 3 hpcfl ")


@pytest.mark.parametrize("script", ["train.pbs", "train.lsf"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.toml --out ''", "<a.toml><--out><>"),
        ("'' a '' ''", "<><a><><>"),
        ('""', "<>"),
        ("  ", ""),
        ("end", "<end>"),
    ],
)
def test_empty_arguments_are_arguments(job: Job, script: str, text: str, words: str):
    assert job.run(script, HPCFL_ARGS=text)[0] == 0
    assert job.calls("hpcfl") == [f"hpcfl 1: <train>{words}"]


def test_lsf_requeues_by_the_exit_code_and_counts(job: Job):
    assert "#BSUB -Q 75\n" in (JOBS / "train.lsf").read_text()
    assert [job.run("train.lsf", CODE="75", HPCFL_MAX_RESTARTS="2")[0] for _ in range(3)] == [75, 75, 1]


@pytest.mark.parametrize("script", ["train.sbatch", "train.pbs"])
def test_a_run_is_not_restarted_for_ever(job: Job, script: str):
    last = {"CODE": "75", "SLURM_RESTART_COUNT": "3", "HPCFL_RESTARTS": "3"}
    code, said = job.run(script, HPCFL_MAX_RESTARTS="3", **last)
    assert (code, job.calls("scontrol") + job.calls("qsub")) == (1, [])
    assert "started 4 times without reaching the end" in said
    assert job.run(script, HPCFL_MAX_RESTARTS="4", **last)[0] == 75


def test_every_life_has_a_step_number_of_its_own(job: Job):
    assert job.run("train.sbatch", SLURM_RESTART_COUNT="2")[0] == 0
    assert job.calls("srun")[:2] == ["srun --nodes=1 --ntasks=1 bash -c true"] * 2
    assert (len(job.calls("srun")), len(job.calls("hpcfl"))) == (3, 1)


def test_a_requeue_that_is_refused_is_said(job: Job):
    code, said = job.run("train.sbatch", CODE="75", REQUEUE="1")
    assert code == 1
    assert "could not be queued again" in said


@pytest.mark.parametrize(
    ("script", "launcher"),
    [("train.sbatch", "pmix"), ("train.sbatch", "mpirun"), ("train.pbs", "mpirun"), ("train.lsf", "mpirun")],
)
def test_the_warning_reaches_the_ranks(job: Job, script: str, launcher: str):
    warning = signal.SIGURG if script == "train.lsf" else signal.SIGUSR1
    with job.start(script, CODE="75", WAITS="1", HPCFL_MPI=launcher) as process:
        await_ready(job)
        process.send_signal(warning)
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 75, said
    assert "queued again" in said


@pytest.mark.parametrize(("code", "want"), [("138", 75), ("10", 75), ("1", 1), ("137", 137)])
def test_a_warning_before_hpcfl_listens_ends_no_job(job: Job, code: str, want: int):
    with job.start("train.sbatch", CODE=code, WAITS="1", HPCFL_MPI="mpirun") as process:
        await_ready(job)
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=20)
    assert (process.returncode, len(job.calls("scontrol"))) == (want, int(want == 75))


def test_pbs_warns_itself_before_the_walltime(job: Job):
    code, said = job.run("train.pbs", CODE="75", WAITS="1", WALLTIME="00:00:03", HPCFL_WARNING="2")
    assert (code, len(job.calls("qsub"))) == (75, 1), said


def test_pbs_leaves_no_timer_behind(job: Job):
    seconds = 10**7 + os.getpid()  # that nobody else sleeps
    with job.start("train.pbs", WAITS="1", PBS_WALLTIME=str(seconds), HPCFL_WARNING="0") as process:
        await_ready(job)
        assert sleeps(seconds)
        process.send_signal(signal.SIGUSR1)
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 0, said
    end = time.monotonic() + 5
    while sleeps(seconds):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_cancelled_job_does_not_come_back(job: Job):
    with job.start("train.sbatch", CODE="75", WAITS="1", HPCFL_MPI="mpirun") as process:
        await_ready(job)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGUSR1)
        said = process.communicate(timeout=20)[1]
    assert (process.returncode, job.calls("scontrol")) == (75, [])
    assert "stopped from outside" in said


@pytest.mark.parametrize(
    ("script", "arguments", "environ", "want"),
    [
        ("train.sbatch", [], {"HPCFL_MPI": "pmi3"}, "HPCFL_MPI = pmi3: must be pmi2, pmix or mpirun"),
        ("train.sbatch", [], {"SLURM_JOB_ID": ""}, "no job of Slurm, PBS or LSF: submit this script"),
        ("study.sbatch", ["none"], {}, "needs a file with the arguments"),
        ("study.pbs", [], {"HPCFL_TASKS": "none"}, "needs a file with the arguments"),
        ("study.pbs", [], {"PBS_ARRAY_INDEX": ""}, "runs as an array"),
        ("study.lsf", [], {"LSB_JOBINDEX": "0"}, "runs as an array"),
        ("study.sbatch", ["nodes"], {"SLURM_ARRAY_TASK_ID": ""}, "runs as an array"),
        ("train.pbs", [], {"HPCFL_ARGS": "--out 'a"}, "quotes do not match: --out 'a"),
    ],
)
def test_bad_input_is_one_sentence(job: Job, script: str, arguments: list[str], environ: dict, want: str):
    code, said = job.run(script, *arguments, **environ)
    assert code == 2
    assert len(said.splitlines()) == 1
    assert want in said
    assert not (job.place / "calls").exists()


def sleeps(seconds: int) -> bool:
    """Says whether there is a process that sleeps so long."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (process / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                return True
    return False


@pytest.mark.slurm
@pytest.mark.skipif(
    not shutil.which("slurmctld"), reason="no slurmctld; tools/test --stress slurm installs it"
)
@pytest.mark.skipif(os.geteuid() != 0, reason="the Slurm lab needs root")
@pytest.mark.skipif(Path(sys.prefix).parent != ROOT, reason="the Slurm lab uses .venv, as tools/test does")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_on_a_real_slurm(scenario: str):
    command = [sys.executable, "-m", "tests.stress.slurm", "--only", scenario]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
