import numpy as np
import pytest

from hpcfl.comm.communicator import ControlFlags, open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.errors import BadInput, Refused

OMPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}
HYDRA = {"PMI_SIZE": "5", "PMI_RANK": "2", "HYDI_CONTROL_FD": "7"}
STEP = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "3"}


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}, None),  # a batch script itself
        (OMPI, (4, 1, True)),
        (HYDRA, (5, 2, False)),
        (STEP, (6, 3, None)),
        (STEP | {"PMI_SIZE": "6", "PMI_RANK": "3"}, (6, 3, None)),  # srun --mpi=pmi2
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"} | OMPI, (4, 1, True)),  # mpirun inside a step
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"} | HYDRA, (5, 2, False)),
        (STEP | {"PMI_SIZE": "9", "PMI_RANK": "2", "MPI_LOCALRANKID": "0"}, (9, 2, False)),  # mpirun by Slurm
    ],
)
def test_the_launcher_is_read_from_its_own_variables(environ, want):
    found = find_launcher(environ)
    assert (found and (found.size, found.rank, found.open_mpi)) == want


def test_one_process_is_server_and_worker():
    link = open_communicator(None)
    assert link.is_server
    assert list(link.workers) == [0]
    body = np.arange(3, dtype=np.uint8)
    assert link.broadcast(ControlFlags.STOP, body) == (ControlFlags.STOP, body)
    word, bodies = link.gather(ControlFlags.SIGNAL, body)
    assert word == ControlFlags.SIGNAL
    assert bodies[0] is body
    assert link.traffic.pop_bytes() == 0


def test_bad_input_becomes_a_refusal_that_all_ranks_share():
    link = open_communicator(None)
    with pytest.raises(Refused, match="no"), link.raise_on_all():
        raise BadInput("no")
    with link.raise_on_all():
        pass
