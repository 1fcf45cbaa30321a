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

    from hpcfl.comm.barrier import LONGEST, Barrier
    from hpcfl.comm.shared_window import SharedBytes

GATE_NAP = 1e-2
"""Longest sleep while other ranks of the node have all its cores."""
TRANSFER_NAP = 2e-4
"""Longest sleep in a collective, once all ranks are there."""


class MpiCommunicator(Communicator):
    """The ranks of a communicator."""

    def __init__(self, comm: MPI.Intracomm, library: str, last: bool = False):
        """`last`: MPI itself ends with this link."""
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(comm.rank, comm.size, node.rank, library)
        node.Free()
        self.comm, self.last = comm, last
        self.meeting: Barrier | None = None
        self.arenas: list[SharedBytes] = []

    def check(self) -> None:
        """Called now and then while this rank waits; raises if it should not go on."""

    def first(self, size: int) -> MpiCommunicator | None:
        self._gather_round()
        comm = cast(MPI.Intracomm, self.comm.Split(0 if self.rank < size else MPI.UNDEFINED, self.rank))
        return MpiCommunicator(comm, self.library) if comm != MPI.COMM_NULL else None

    def meet(self, pretend_nodes: int, stall_minutes: float) -> None:
        self._gather_round()
        self.meeting = Barrier(self.comm, pretend_nodes, COUNTERS, 60 * stall_minutes, self.check)
        self.node = self.meeting.node
        self.traffic = Traffic()

    def broadcast(self, word: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, np.ndarray]:
        self._arrive()
        head = np.array([word, body.nbytes], dtype=np.int64)
        self._finish(self.comm.Ibcast(head, root=0))
        if not self.is_server:
            body = np.empty(head[1], dtype=np.uint8)
        if head[1]:
            self._finish(self.comm.Ibcast(body, root=0))
        self.traffic.nbytes += int(head.nbytes + head[1]) * (self.size - 1)
        return ControlFlags(int(head[0])), body

    def gather(self, word: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        self._arrive()
        head = np.array([word, body.nbytes], dtype=np.int64)
        if not self.is_server:
            self._finish(self.comm.Igather(head, None, root=0))
            self._finish(self.comm.Igatherv(body, None, root=0))
            return word, []
        heads = np.empty((self.size, 2), dtype=np.int64)
        self._finish(self.comm.Igather(head, heads, root=0))
        sizes = heads[:, 1]
        ends = np.cumsum(sizes)
        whole = np.empty(ends[-1], dtype=np.uint8)
        self._finish(self.comm.Igatherv(body, [whole, sizes, ends - sizes, MPI.BYTE], root=0))
        self.traffic.nbytes += int(heads[1:].nbytes + sizes[1:].sum())
        return ControlFlags(int(np.bitwise_or.reduce(heads[:, 0]))), np.split(whole, ends[:-1])

    def take(self, counter: int, by: int = 1) -> int:
        assert self.meeting is not None
        return self.meeting.board.take(counter, by)

    def wait_below(self, counter: int, limit: int) -> None:
        assert self.meeting is not None
        self.meeting.sleep_until(lambda: self.peek(counter) < limit, GATE_NAP)

    def peek(self, counter: int) -> int:
        assert self.meeting is not None
        return self.meeting.board.peek(counter)

    def stir(self) -> None:
        assert self.meeting is not None
        self.meeting.stir()

    def missing(self) -> tuple[list[int], float]:
        return self.meeting.missing() if self.meeting else ([], 0.0)

    def share(self, nbytes: int) -> np.ndarray:
        assert self.meeting is not None
        self._gather_round()
        self.arenas.append(SharedBytes(self.meeting.comm, nbytes))
        return self.arenas[-1].bytes

    def facts(self, mine: Any) -> list[Any]:
        self._gather_round()
        return self.comm.allgather(mine)

    def release(self) -> None:
        self._gather_round()
        for arena in self.arenas:
            arena.free()
        self.arenas.clear()
        if self.meeting is not None:
            self.meeting.free()
            self.meeting = None

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
        assert self.meeting is not None
        for arena in self.arenas:
            arena.window.Sync()
        self.meeting.arrive()
        for arena in self.arenas:
            arena.window.Sync()

    def _finish(self, request: MPI.Request) -> None:
        """Completes a collective that all ranks have come to."""
        assert self.meeting is not None
        start = time.perf_counter()
        self.meeting.sleep_until(request.Test, TRANSFER_NAP)
        self.traffic.moved += time.perf_counter() - start

    def _gather_round(self) -> None:
        """Waits for all ranks, at start and end too, where they may not have met yet."""
        if self.meeting is not None:
            self.meeting.arrive()
            return
        barrier = self.comm.Ibarrier()
        while not barrier.Test():
            self.check()
            time.sleep(LONGEST)


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
