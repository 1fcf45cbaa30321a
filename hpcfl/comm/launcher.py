"""The launcher that started this process, read from the environment before MPI is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

OUTPUT_DELAY = 1.0
"""Seconds to wait for another rank's output: some launchers kill all processes when the first one ends."""


@dataclass(frozen=True)
class Launcher:
    """Name of the launcher, number of processes it started, and this process's rank."""

    name: str
    size: int
    rank: int
    open_mpi: bool | None
    """Whether it starts Open MPI (True) or an MPI of the MPICH family (False); None: either."""


def find_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """Returns the launcher of this process, or None if it was started without one.

    The variables of an mpirun inside a Slurm step are read before those of Slurm. A batch script, which is
    not an MPI process, has SLURM_NTASKS but not SLURM_STEP_NUM_TASKS.
    """
    known = [
        ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", True),
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", None),
    ]
    hydra = ("MPICH's mpirun", "PMI_SIZE", "PMI_RANK", False)
    # srun may set the PMI variables too; within a Slurm job hydra may set only the second of these
    from_hydra = "HYDI_CONTROL_FD" in environ or "MPI_LOCALRANKID" in environ
    known.insert(1 if from_hydra else 2, hydra)
    for name, size, rank, open_mpi in known:
        if environ.get(size, "").isdecimal() and environ.get(rank, "").isdecimal():
            return Launcher(name, int(environ[size]), int(environ[rank]), open_mpi)
    return None


def is_first_process() -> bool:
    """Returns whether this process prints messages to the user before MPI is initialised."""
    launcher = find_launcher()
    return launcher is None or launcher.rank == 0
