"""A check before MPI starts, which crashes without a message if shared memory is too small."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcfl.comm.launcher import Launcher
from hpcfl.doctor.finding import Finding, warning
from hpcfl.utils.formatting import format_memory, plural

BYTES_PER_RANK = 6_000_000
"""Bytes of shared memory that MPICH takes per rank of a node (5.4 MB measured); Open MPI takes less."""


def check_start(launcher: Launcher, environ: Mapping[str, str], free: int) -> list[Finding]:
    """Returns a warning if MPI itself may not fit into this node's shared memory."""
    ranks = local_ranks(launcher, environ)
    if launcher.open_mpi or launcher.size == 1 or free >= ranks * BYTES_PER_RANK:
        return []
    return [
        warning(
            "MPI start",
            f"{format_memory(free)} of shared memory is free, MPI itself may take "
            f"{format_memory(ranks * BYTES_PER_RANK)} for {plural(ranks, 'rank')} on this node: if all ends "
            "here with a segmentation fault or bus error, that is why",
            "docker run --shm-size=1g; root: mount -o remount,size=1g /dev/shm; or fewer ranks per node",
        )
    ]


def local_ranks(launcher: Launcher, environ: Mapping[str, str]) -> int:
    """Returns how many ranks the launcher starts on this node, or the total if that is unknown."""
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"):
        if number := re.match(r"\d+", environ.get(name, "")):
            return int(number[0])
    return launcher.size
