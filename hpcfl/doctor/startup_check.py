"""What must be said before MPI starts: with too little shared memory it crashes without a word."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcfl.comm.launcher import Launcher
from hpcfl.doctor.finding import Finding, warning
from hpcfl.utils.formatting import format_bytes, plural

EACH = 6_000_000
"""Bytes of shared memory that MPICH takes per rank of a node (5.4 MB measured); Open MPI takes less."""


def check_start(found: Launcher, environ: Mapping[str, str], free: int) -> list[Finding]:
    """Returns a warning if MPI itself may not fit into this node's shared memory."""
    ranks = local_ranks(found, environ)
    if found.open_mpi or found.size == 1 or free >= ranks * EACH:
        return []
    return [
        warning(
            "MPI start",
            f"{format_bytes(free)} of shared memory is free, MPI itself may take {format_bytes(ranks * EACH)} for "
            f"{plural(ranks, 'rank')} on this node: if all ends here with a segmentation fault or bus error, "
            "that is why",
            "docker run --shm-size=1g; root: mount -o remount,size=1g /dev/shm; or fewer ranks per node",
        )
    ]


def local_ranks(found: Launcher, environ: Mapping[str, str]) -> int:
    """Returns how many ranks the launcher starts on this node, or all where it does not tell."""
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"):
        if number := re.match(r"\d+", environ.get(name, "")):
            return int(number[0])
    return found.size
