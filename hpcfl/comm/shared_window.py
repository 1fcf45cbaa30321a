"""Shared memory of a node: each rank's barrier generation and alive counter, and atomic counters.

They lie in one MPI window that stays locked (`Lock_all`) as long as it exists: a counter can then be advanced
while the rank that owns the memory computes.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI


class SharedBytes:
    """Bytes in a shared-memory window of a node's communicator, all in the first rank's segment."""

    def __init__(self, comm: MPI.Intracomm, nbytes: int):
        self.window = MPI.Win.Allocate_shared(nbytes if comm.rank == 0 else 0, 1, comm=comm)
        memory, _ = self.window.Shared_query(0)
        self.bytes = np.asarray(memory).view(np.uint8)[:nbytes]
        self.window.Lock_all(MPI.MODE_NOCHECK)

    def free(self) -> None:
        """Unlocks and frees the window; every rank of the node calls it."""
        self.window.Unlock_all()
        del self.bytes
        self.window.Free()


class SharedWindow:
    """The int64 values that the ranks of a node share.

    `arrived` is the last barrier generation that each rank has reached, `alive` each rank's alive counter,
    `released` the last generation that the node's leader has released, `trained` each rank's clients trained
    in a round (round · 2³² + clients); `counters` start at 0.
    """

    def __init__(self, comm: MPI.Intracomm, counters: int):
        self.rank, ranks = comm.rank, comm.size
        self.shared = SharedBytes(comm, 8 * (3 * ranks + 1 + counters))
        values = self.shared.bytes.view(np.int64)
        if comm.rank == 0:
            values[:] = 0
            self.sync()
        comm.Barrier()
        self.sync()
        self.arrived, self.alive = values[:ranks], values[ranks : 2 * ranks]
        self.released = values[2 * ranks :][:1]
        self.trained = values[2 * ranks + 1 : 3 * ranks + 1]
        self.first_counter = 3 * ranks + 1
        self.counters = values[self.first_counter :]

    def sync(self) -> None:
        """Makes this rank's writes visible to the others, and theirs to this rank."""
        self.shared.window.Sync()

    def fetch_add(self, counter: int, by: int = 1) -> int:
        """Adds to a counter atomically and returns its value before."""
        increment, value = np.full(1, by, dtype=np.int64), np.empty(1, dtype=np.int64)
        window = self.shared.window
        window.Fetch_and_op(increment, value, 0, 8 * (self.first_counter + counter), MPI.SUM)
        window.Flush(0)
        return int(value[0])

    def count_trained(self, round_: int, clients: int) -> None:
        """Sets how many clients this rank has trained in a round."""
        self.trained[self.rank] = (round_ << 32) + clients

    def read_counter(self, counter: int) -> int:
        """Returns a counter's value, which may be slightly out of date."""
        return int(self.counters[counter])
