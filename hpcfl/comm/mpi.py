"""The link over MPI: buffer collectives, each led by a control word and a size."""

from __future__ import annotations

import time
import warnings
from typing import Any

import mpi4py
import numpy as np

from hpcfl.comm.launcher import Launcher
from hpcfl.comm.link import Link, Word
from hpcfl.errors import Refused

mpi4py.rc.initialize = False
with warnings.catch_warnings():
    warnings.simplefilter("ignore", RuntimeWarning)  # a foreign launcher: refused below, with the reason
    from mpi4py import MPI

ARRIVAL_NAP = 2e-3
"""Longest sleep while other ranks still compute: short waits stay short, long ones cost no core."""
TRANSFER_NAP = 2e-4
"""Longest sleep once all are there."""


class MpiLink(Link):
    """COMM_WORLD, checked against what the launcher says it started."""

    def __init__(self, found: Launcher):
        library = " ".join(MPI.Get_library_version().split(",")[0].split("\n")[0].split())
        if found.open_mpi is not None and found.open_mpi != library.startswith("Open MPI"):
            raise Refused(
                f"{found.name} started {found.size} processes, but this Python's MPI is {library}: each "
                "would run alone; use the mpirun that belongs to this Python, beside it in its bin directory"
            )
        MPI.Init_thread(MPI.THREAD_FUNNELED)
        self.comm = MPI.COMM_WORLD
        if self.comm.size != found.size:
            seen = self.comm.size
            MPI.Finalize()
            raise Refused(
                f"{found.name} started {found.size} processes, but MPI ({library}) sees {seen}: each runs "
                "alone; use the mpirun that belongs to this Python, or with srun the --mpi= that this MPI "
                "speaks (srun --mpi=list)"
            )
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(self.comm.rank, self.comm.size, node.rank, library)
        node.Free()

    def broadcast(self, word: Word, body: np.ndarray) -> tuple[Word, np.ndarray]:
        head = np.array([word, body.nbytes], dtype=np.int64)
        self._wait(self.comm.Ibcast(head, root=0), arrival=True)
        if not self.is_server:
            body = np.empty(head[1], dtype=np.uint8)
        if head[1]:
            self._wait(self.comm.Ibcast(body, root=0))
        self.traffic.nbytes += int(head.nbytes + head[1]) * (self.size - 1)
        return Word(int(head[0])), body

    def gather(self, word: Word, body: np.ndarray) -> tuple[Word, list[np.ndarray]]:
        head = np.array([word, body.nbytes], dtype=np.int64)
        if not self.is_server:
            self._wait(self.comm.Igather(head, None, root=0), arrival=True)
            self._wait(self.comm.Igatherv(body, None, root=0))
            return word, []
        heads = np.empty((self.size, 2), dtype=np.int64)
        self._wait(self.comm.Igather(head, heads, root=0), arrival=True)
        sizes = heads[:, 1]
        ends = np.cumsum(sizes)
        whole = np.empty(ends[-1], dtype=np.uint8)
        self._wait(self.comm.Igatherv(body, [whole, sizes, ends - sizes, MPI.BYTE], root=0))
        self.traffic.nbytes += int(heads[1:].nbytes + sizes[1:].sum())
        return Word(int(np.bitwise_or.reduce(heads[:, 0]))), np.split(whole, ends[:-1])

    def facts(self, mine: Any) -> list[Any]:
        self._wait(self.comm.Ibarrier(), arrival=True)
        return self.comm.allgather(mine)

    def close(self) -> None:
        self._wait(self.comm.Ibarrier(), arrival=True)
        MPI.Finalize()

    def abort(self, code: int) -> None:
        self.comm.Abort(code)

    def _wait(self, request: MPI.Request, arrival: bool = False) -> None:
        """Waits politely: tests, and sleeps in between, at first briefly."""
        start = time.perf_counter()
        longest = ARRIVAL_NAP if arrival else TRANSFER_NAP
        nap = 2e-5
        while not request.Test():
            time.sleep(nap)
            nap = min(2 * nap, longest)
        spent = time.perf_counter() - start
        if arrival:
            self.traffic.waited += spent
        else:
            self.traffic.moved += spent
