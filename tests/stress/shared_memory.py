"""Starts two jobs at the same time on a node whose shared memory has room for one of them: neither may die.

tools/test --stress shared-memory [--count 3] [--mpi mpich|openmpi]

Needs root, for a small /dev/shm of its own (a mount namespace); nothing outside it changes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import read_log
from tests.stress.jobs import LAUNCHERS

MEGABYTES = 120
"""Of shared memory: MPI takes 16 MB per job, the clients of a job 49 MB."""
SETTINGS = (
    *("federation.rounds=2", "federation.clients=10", "data.samples_per_class=200"),
    *("models.list=['mlp_256']", "models.features=4096"),
)
LIMIT = 180.0
"""Seconds within which both jobs must end."""


def run_pair(mpi: str, directory: Path) -> list[str]:
    """Runs two jobs beside each other and returns their arenas; raises if one fails or they differ."""
    jobs = [
        subprocess.Popen(
            [
                *LAUNCHERS[mpi].command(3, "-m", "hpcfl", "train", "--out", directory / f"{name}.h5"),
                *(f"--set={setting}" for setting in SETTINGS),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("a", "b")
    ]
    for job in jobs:
        output, _ = job.communicate(timeout=LIMIT)
        assert job.returncode == 0, f"exit code {job.returncode}: {output[-2000:]}"
    logs = [read_log(directory / f"{name}.h5") for name in ("a", "b")]
    assert compare_runs(*logs) is None
    return [str(log.attributes["arena"]) for log in logs]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/test --stress shared-memory")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--mpi", choices=sorted(LAUNCHERS), default="mpich")
    asked = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print("shared-memory: needs root, to mount a small /dev/shm", file=sys.stderr)
        return 2
    if "HPCFL_SMALL_SHM" not in os.environ:  # once more, where mounts are this process's own
        command = f'mount -t tmpfs -o size={MEGABYTES}m tmpfs /dev/shm && exec "$@"'
        again = [sys.executable, "-m", "tests.stress.shared_memory", *arguments]
        environ = os.environ | {"HPCFL_SMALL_SHM": "1"}
        return subprocess.run(["unshare", "-m", "sh", "-c", command, "sh", *again], env=environ).returncode
    for number in range(asked.count):
        with tempfile.TemporaryDirectory() as directory:
            print(f"{number + 1}: arenas {', '.join(run_pair(asked.mpi, Path(directory)))}", flush=True)
    print(f"{asked.count} pairs of jobs, all ended, their results are equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
