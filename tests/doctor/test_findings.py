"""The summary of findings, and what is said before MPI starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcfl.doctor.finding import summary
from hpcfl.doctor.rank_checks import check_cores, check_devices, check_launch
from hpcfl.doctor.startup_check import check_start
from tests.helpers.doctor import HYDRA, PRTE, SRUN, check, job


def test_summary():
    assert summary([check_launch(job(2))]) == "hpcfl doctor: all is well"
    warned, wrong = check_cores(job(99), 1), check_devices(job(2), "cuda")
    assert summary([warned, wrong, wrong]) == "hpcfl doctor: 2 problems, 1 warning"


@pytest.mark.parametrize(
    ("launcher", "environ", "free", "ranks"),
    [
        (HYDRA, {}, 29_999_999, 5),
        (HYDRA, {}, 30_000_000, 0),
        (HYDRA, {"MPI_LOCALNRANKS": "2"}, 12_000_000, 0),
        (SRUN, {"SLURM_STEP_TASKS_PER_NODE": "3(x2),1"}, 17_999_999, 3),
        (PRTE, {}, 0, 0),
        (replace(SRUN, size=1), {}, 0, 0),
    ],
)
def test_shared_memory_too_small_for_mpi_itself(launcher, environ, free, ranks):
    """Six megabytes for each rank of the node, unless it is Open MPI, which does without."""
    found = check_start(launcher, environ, free)
    assert bool(found) == bool(ranks)
    for finding in found:
        check(finding, "warning", f"for {ranks} ranks on this node", "--shm-size")
