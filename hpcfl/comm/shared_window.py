"""The words that all ranks of a node see: who has arrived, who is awake, and counters to take numbers from.

They lie in one shared-memory window that is locked for life: a counter can then be advanced while the rank
that owns its memory computes.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI


class SharedBytes:
    """Bytes in a window of a node's communicator; the first rank's segment holds them all."""

    def __init__(self, comm: MPI.Intracomm, nbytes: int):
        self.window = MPI.Win.Allocate_shared(nbytes if comm.rank == 0 else 0, 1, comm=comm)
        memory, _ = self.window.Shared_query(0)
        self.bytes = np.asarray(memory).view(np.uint8)[:nbytes]
        self.window.Lock_all(MPI.MODE_NOCHECK)

    def free(self) -> None:
        self.window.Unlock_all()
        del self.bytes
        self.window.Free()


class SharedWindow:
    """Arrival and waking words, one of each per rank of the node, a word of the leader's, and counters."""

    def __init__(self, comm: MPI.Intracomm, counters: int):
        self.rank, ranks = comm.rank, comm.size
        self.shared = SharedBytes(comm, 8 * (2 * ranks + 1 + counters))
        words = self.shared.bytes.view(np.int64)
        if comm.rank == 0:
            words[:] = 0
            self.sync()
        comm.Barrier()
        self.sync()
        self.arrived, self.alive, self.released = (
            words[:ranks],
            words[ranks : 2 * ranks],
            words[2 * ranks :][:1],
        )
        self.first_counter = 2 * ranks + 1
        self.counters = words[self.first_counter :]

    def sync(self) -> None:
        """Makes this rank's writes seen, and those of others visible."""
        self.shared.window.Sync()

    def fetch_add(self, counter: int, by: int = 1) -> int:
        """Returns the counter's value and advances it, in one step."""
        step, value = np.full(1, by, dtype=np.int64), np.empty(1, dtype=np.int64)
        window = self.shared.window
        window.Fetch_and_op(step, value, 0, 8 * (self.first_counter + counter), MPI.SUM)
        window.Flush(0)
        return int(value[0])

    def read_counter(self, counter: int) -> int:
        """Returns the counter's value, perhaps a moment old."""
        return int(self.counters[counter])
