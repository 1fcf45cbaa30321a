"""All cases, a study and `hpcfl.train` in one MPI start: python -m tests.mpi.several DIRECTORY DATA."""

import json
import os
import sys
from pathlib import Path

from hpcfl.comm.communicator import open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.comm.mpi import MPI
from hpcfl.engine import launch
from hpcfl.study.run import run_study
from tests.helpers.cases import FEW_RANKS, runs
from tests.mpi.guest import visit


def resources() -> tuple[int, int]:
    """Returns the number of mapped segments of shared memory, and of open files."""
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return sum("/dev/shm" in line or "/SYSV" in line for line in mapped), len(os.listdir("/proc/self/fd"))


def main(directory: Path, root: str) -> None:
    comm = open_communicator(find_launcher())
    leave, comm.close = comm.close, comm.release  # type: ignore[method-assign]
    launch.open_communicator = lambda launcher: comm
    codes = {}
    for name, settings in runs(comm.size).items():
        codes[name] = launch.launch_train(
            None, [*settings, f"data.root={root}"], str(directory / f"{name}.h5"), False
        )
    if comm.size <= FEW_RANKS:
        codes["study"] = run_study(str(directory / "study.toml"), "full", [], str(directory / "study"), [])
        held = resources()
        some = ["ranks-r2", "other-lr=0.01"]
        assert run_study(str(directory / "study.toml"), "full", [], str(directory / "again"), some) == 0
        assert resources() == held, "cells give all back"
        seen = visit(MPI.COMM_WORLD, directory)
        if comm.is_server:
            print("guest", json.dumps(seen))
    if comm.is_server:
        print("codes", codes)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
