"""The link over MPI: buffer collectives, each led by a control word and a size."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any, cast

import mpi4py
import numpy as np

from hpcfl.comm.communicator import COUNTERS, Communicator, ControlFlags, Traffic
from hpcfl.comm.launcher import Launcher
from hpcfl.errors import Refused

mpi4py.rc.initialize = False
os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # Open MPI's UCX windows complain where there is no fabric
with warnings.catch_warnings():
    warnings.simplefilter("ignore", RuntimeWarning)  # a foreign launcher: refused below, with the reason
    from mpi4py import MPI

    from hpcfl.comm.barrier import LONGEST_SLEEP, Barrier
    from hpcfl.comm.shared_window import SharedBytes

LIMITER_SLEEP = 1e-2
"""Longest sleep while other ranks of the node have all its cores."""
TRANSFER_SLEEP = 2e-4
"""Longest sleep in a collective, once all ranks are there."""


class MpiCommunicator(Communicator):
    """The ranks of a communicator."""

    def __init__(self, comm: MPI.Intracomm, library: str, last: bool = False):
        """`last`: MPI itself ends with this link."""
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(comm.rank, comm.size, node.rank, library)
        node.Free()
        self.comm, self.last = comm, last
        self.barrier: Barrier | None = None
        self.arenas: list[SharedBytes] = []

    def check_peers(self) -> None:
        """Called now and then while this rank waits; raises if it should not go on."""

    def first_ranks(self, size: int) -> MpiCommunicator | None:
        self._wait_for_all()
        comm = cast(MPI.Intracomm, self.comm.Split(0 if self.rank < size else MPI.UNDEFINED, self.rank))
        return MpiCommunicator(comm, self.library) if comm != MPI.COMM_NULL else None

    def setup_nodes(self, pretend_nodes: int, stall_minutes: float) -> None:
        self._wait_for_all()
        self.barrier = Barrier(self.comm, pretend_nodes, COUNTERS, 60 * stall_minutes, self.check_peers)
        self.node = self.barrier.node
        self.traffic = Traffic()

    def broadcast(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, np.ndarray]:
        self._arrive()
        head = np.array([flags, body.nbytes], dtype=np.int64)
        self._finish(self.comm.Ibcast(head, root=0))
        if not self.is_server:
            body = np.empty(head[1], dtype=np.uint8)
        if head[1]:
            self._finish(self.comm.Ibcast(body, root=0))
        self.traffic.nbytes += int(head.nbytes + head[1]) * (self.size - 1)
        return ControlFlags(int(head[0])), body

    def gather(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        self._arrive()
        head = np.array([flags, body.nbytes], dtype=np.int64)
        if not self.is_server:
            self._finish(self.comm.Igather(head, None, root=0))
            self._finish(self.comm.Igatherv(body, None, root=0))
            return flags, []
        heads = np.empty((self.size, 2), dtype=np.int64)
        self._finish(self.comm.Igather(head, heads, root=0))
        sizes = heads[:, 1]
        ends = np.cumsum(sizes)
        whole = np.empty(ends[-1], dtype=np.uint8)
        self._finish(self.comm.Igatherv(body, [whole, sizes, ends - sizes, MPI.BYTE], root=0))
        self.traffic.nbytes += int(heads[1:].nbytes + sizes[1:].sum())
        return ControlFlags(int(np.bitwise_or.reduce(heads[:, 0]))), np.split(whole, ends[:-1])

    def fetch_add(self, counter: int, by: int = 1) -> int:
        assert self.barrier is not None
        return self.barrier.window.fetch_add(counter, by)

    def wait_below(self, counter: int, limit: int) -> None:
        assert self.barrier is not None
        self.barrier.sleep_until(lambda: self.read_counter(counter) < limit, LIMITER_SLEEP)

    def read_counter(self, counter: int) -> int:
        assert self.barrier is not None
        return self.barrier.window.read_counter(counter)

    def mark_alive(self) -> None:
        assert self.barrier is not None
        self.barrier.mark_alive()

    def missing_ranks(self) -> tuple[list[int], float]:
        return self.barrier.missing_ranks() if self.barrier else ([], 0.0)

    def allocate_shared(self, nbytes: int) -> np.ndarray:
        assert self.barrier is not None
        self._wait_for_all()
        self.arenas.append(SharedBytes(self.barrier.comm, nbytes))
        return self.arenas[-1].bytes

    def allgather_object(self, mine: Any) -> list[Any]:
        self._wait_for_all()
        return self.comm.allgather(mine)

    def release(self) -> None:
        self._wait_for_all()
        for arena in self.arenas:
            arena.free()
        self.arenas.clear()
        if self.barrier is not None:
            self.barrier.free()
            self.barrier = None

    def close(self) -> None:
        self.release()
        if self.last:
            MPI.Finalize()
        else:
            self.comm.Free()

    def abort(self, code: int) -> None:
        MPI.COMM_WORLD.Abort(code)

    def _arrive(self) -> None:
        """Waits for all ranks; what others wrote to the node's memory before they came is then visible."""
        assert self.barrier is not None
        for arena in self.arenas:
            arena.window.Sync()
        self.barrier.arrive()
        for arena in self.arenas:
            arena.window.Sync()

    def _finish(self, request: MPI.Request) -> None:
        """Completes a collective that all ranks have come to."""
        assert self.barrier is not None
        start = time.perf_counter()
        self.barrier.sleep_until(request.Test, TRANSFER_SLEEP)
        self.traffic.moved += time.perf_counter() - start

    def _wait_for_all(self) -> None:
        """Waits for all ranks, at start and end too, where they may not have met yet."""
        if self.barrier is not None:
            self.barrier.arrive()
            return
        barrier = self.comm.Ibarrier()
        while not barrier.Test():
            self.check_peers()
            time.sleep(LONGEST_SLEEP)


def open_world(found: Launcher) -> MpiCommunicator:
    """Starts MPI and returns the link of all ranks."""
    return MpiCommunicator(world_comm(found), library_name(), last=True)


def world_comm(found: Launcher) -> MPI.Intracomm:
    """Returns all ranks, checked against what the launcher says it started; starts MPI if nobody has."""
    library = library_name()
    if found.open_mpi is not None and found.open_mpi != library.startswith("Open MPI"):
        raise Refused(
            f"{found.name} started {found.size} processes, but this Python's MPI is {library}: each "
            "would run alone; use the mpirun that belongs to this Python, beside it in its bin directory"
        )
    ours = not MPI.Is_initialized()
    if ours:
        MPI.Init_thread(MPI.THREAD_FUNNELED)
    if MPI.COMM_WORLD.size != found.size:
        seen = MPI.COMM_WORLD.size
        if ours:
            MPI.Finalize()
        raise Refused(
            f"{found.name} started {found.size} processes, but MPI ({library}) sees {seen}: each runs "
            "alone; use the mpirun that belongs to this Python, or with srun the --mpi= that this MPI "
            "speaks (srun --mpi=list)"
        )
    return MPI.COMM_WORLD


def library_name() -> str:
    """Returns the name and version of the MPI library."""
    return " ".join(MPI.Get_library_version().split(",")[0].split("\n")[0].split())
