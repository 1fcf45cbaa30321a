"""Exchanges messages that are larger than one transfer may be: python -m tests.mpi.large LIMIT SIZE."""

import sys

import numpy as np
import torch

from hpcfl.comm import mpi
from hpcfl.comm.communicator import Communicator, ControlFlags, open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.exchange.codec import ClientUpload, Codec, decode_uploads, encode_uploads
from hpcfl.exchange.payload import Dense, tensor


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
    exchange_networks(comm, size)
    comm.close()


def exchange_networks(comm: Communicator, numbers: int) -> None:
    """Every worker uploads four networks; rank 0 reads them where they arrived, without a copy."""
    codec, number = Codec([Dense("w", (numbers,))]), 4 * (comm.size - 1)
    own = [client for client in range(number) if client % (comm.size - 1) + 1 == comm.rank]
    uploads = (ClientUpload(client, False, {"w": torch.full((numbers,), float(client))}) for client in own)
    _, bodies = comm.gather(ControlFlags.GO, encode_uploads(codec, uploads))
    if comm.is_server:
        arrived = decode_uploads(codec, bodies)
        assert [upload.client for upload in arrived] == list(range(number))
        for upload in arrived:
            value = tensor(upload.payload, "w").numpy()
            assert (value == upload.client).all()
            assert any(np.shares_memory(value, body) for body in bodies)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
