"""Who started this process: read from the environment, before MPI is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

SETTLE = 1.0
"""Seconds in which another rank speaks first: some launchers end all processes with the first that ends."""


@dataclass(frozen=True)
class Launcher:
    """What a launcher says of the job and of this process."""

    name: str
    size: int
    rank: int
    open_mpi: bool | None
    """Whether it starts Open MPI or one of MPICH's family; None where it starts either."""


def find_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """Returns the launcher of this process, or None where it was started by hand.

    An mpirun inside a Slurm step is asked before Slurm. A batch script, which is no MPI process, has
    SLURM_NTASKS but not SLURM_STEP_NUM_TASKS.
    """
    known = [
        ("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", True),
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", None),
    ]
    hydra = ("MPICH's mpirun", "PMI_SIZE", "PMI_RANK", False)
    inside = (
        "HYDI_CONTROL_FD" in environ or "MPI_LOCALRANKID" in environ
    )  # the latter alone within a Slurm job
    known.insert(1 if inside else 2, hydra)
    for name, size, rank, open_mpi in known:
        if environ.get(size, "").isdecimal() and environ.get(rank, "").isdecimal():
            return Launcher(name, int(environ[size]), int(environ[rank]), open_mpi)
    return None


def is_first_process() -> bool:
    """Says whether this process is the one that speaks to the user before the ranks have met."""
    found = find_launcher()
    return found is None or found.rank == 0
