"""Exchanges messages that are larger than one transfer may be: python -m tests.mpi.large LIMIT SIZE."""

import sys

import numpy as np

from hpcfl.comm import mpi
from hpcfl.comm.communicator import ControlFlags, open_communicator
from hpcfl.comm.launcher import find_launcher


def main(limit: int, size: int) -> None:
    mpi.MAX_BYTES = limit
    comm = open_communicator(find_launcher())
    comm.setup_nodes(1, 0)
    for nbytes in (size, 5, 0):
        body = np.full(nbytes if comm.is_server else 0, 7, dtype=np.uint8)
        _, got = comm.broadcast(ControlFlags.GO, body)
        assert got.nbytes == nbytes
        assert (got == 7).all()
        want = [nbytes * rank // 3 + rank for rank in range(comm.size)]
        _, bodies = comm.gather(ControlFlags.GO, np.full(want[comm.rank], comm.rank, dtype=np.uint8))
        if comm.is_server:
            assert [body.nbytes for body in bodies] == want
            assert all((body == rank).all() for rank, body in enumerate(bodies))
    comm.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
