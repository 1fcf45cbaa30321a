"""Job scripts run without a batch system: stand-ins for its commands note how they were called."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.helpers.mpi import ROOT

JOBS = ROOT / "jobs"

# srun runs rank 0 and forwards a signal to all its processes; hpcfl ends with $CODE, at once or when told to
STAND_INS = {
    "srun": 'echo "srun $*" >>calls; while [ "$1" != bash ]; do shift; done\n'
    'SLURM_PROCID=0 setsid "$@" & trap "kill -USR1 -- -$!" USR1; wait $!; code=$?\n'
    "[ $code -le 128 ] || { wait $!; code=$?; }; exit $code",
    "mpirun": 'echo "mpirun $*" >>calls; while [ "$1" != hpcfl ]; do shift; done; exec "$@"',
    "hpcfl": 'echo "hpcfl $OMP_NUM_THREADS: $(printf "<%s>" "$@")" >>calls\n'
    '[ -z "$WAITS" ] || { trap "exit $CODE" USR1; touch ready; for i in $(seq 200); do sleep 0.05; done; }\n'
    "exit $CODE",
    "scontrol": 'echo "scontrol $*" >>calls; exit ${REQUEUE:-0}',
    "squeue": "echo 2030-01-01T00:00:00",
    "qsub": 'echo "qsub $* restarts=$HPCFL_RESTARTS${HPCFL_TASK:+ task=$HPCFL_TASK}" >>calls',
    "qstat": 'echo "    Resource_List.walltime = ${WALLTIME:-01:00:00}"',
}
SYSTEMS = {
    "train.sbatch": {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_CPUS_PER_TASK": "2"},
    "study.sbatch": {
        "SLURM_JOB_ID": "9",
        "SLURM_NTASKS": "3",
        "SLURM_ARRAY_JOB_ID": "9",
        "SLURM_ARRAY_TASK_ID": "2",
    },
    "train.pbs": {"PBS_JOBID": "7", "PBS_NODEFILE": "nodes"},
    "train.lsf": {"LSB_JOBID": "7", "LSB_DJOB_NUMPROC": "3"},
    "study.pbs": {"PBS_JOBID": "9[2]", "PBS_NODEFILE": "nodes", "PBS_ARRAY_INDEX": "2"},
    "study.lsf": {"LSB_JOBID": "9", "LSB_JOBINDEX": "2", "LSB_DJOB_NUMPROC": "3"},
}


class Job:
    """A script in an empty directory, with stand-ins for all that it calls."""

    def __init__(self, place: Path):
        self.place = place
        (place / "bin").mkdir()
        for name, text in STAND_INS.items():
            (place / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (place / "bin" / name).chmod(0o755)
        (place / "nodes").write_text("a\na\nb\n")

    def start(self, script: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        base = {"PATH": f"{self.place}/bin:{os.environ['PATH']}", "HPCFL_JOBS": str(JOBS), "CODE": "0"}
        places = {name: str(self.place) for name in ("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD")}
        return subprocess.Popen(
            ["bash", str(JOBS / script), *arguments],
            cwd=self.place,
            env=base | places | SYSTEMS[script] | environ,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *arguments: str, **environ: str) -> tuple[int, str]:
        """Returns the exit code of a script and what it says."""
        with self.start(script, *arguments, **environ) as process:
            said = process.communicate(timeout=30)[1]
        return process.returncode, said

    def calls(self, name: str) -> list[str]:
        """Returns how one of the stand-ins was called."""
        calls = self.place / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line for line in lines if line.startswith(name + " ")]


def await_ready(job: Job) -> None:
    """Waits until the stand-in of hpcfl listens to signals."""
    end = time.monotonic() + 20
    while not (job.place / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
