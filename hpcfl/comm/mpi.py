"""The communicator over MPI: buffer collectives, each preceded by a header of flags and size."""

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
    warnings.simplefilter("ignore", RuntimeWarning)  # of a launcher of another MPI; `world_comm` refuses it
    from mpi4py import MPI

    from hpcfl.comm.barrier import LONGEST_SLEEP, Barrier

LIMITER_SLEEP = 1e-2
"""Longest sleep, in seconds, while waiting for a free core."""
TRANSFER_SLEEP = 2e-4
"""Longest sleep, in seconds, in a collective that all ranks have reached."""


MAX_BYTES = 2**30
"""The most bytes of one transfer: Open MPI fails beyond 2 GiB."""
BODY_TAG = 4


def pieces(body: np.ndarray, nbytes: int) -> list[np.ndarray]:
    """Returns an array of bytes as consecutive views of at most so many bytes."""
    return [body[start : start + nbytes] for start in range(0, body.nbytes, nbytes)]


class MpiCommunicator(Communicator):
    """The ranks of an MPI communicator."""

    def __init__(self, comm: MPI.Intracomm, library: str, finalizes: bool = False):
        """`finalizes`: closing this communicator also finalizes MPI."""
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(comm.rank, comm.size, node.rank, library)
        node.Free()
        self.comm, self.finalizes = comm, finalizes
        self.barrier: Barrier | None = None

    def check_peers(self) -> None:
        """Called repeatedly while this rank waits; may raise. Guests override it."""

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
        header = np.array([flags, body.nbytes], dtype=np.int64)
        self._finish(self.comm.Ibcast(header, root=0))
        if not self.is_server:
            body = np.empty(header[1], dtype=np.uint8)
        for piece in pieces(body, MAX_BYTES):
            self._finish(self.comm.Ibcast(piece, root=0))
        self.traffic.nbytes += int(header.nbytes + header[1]) * (self.size - 1)
        return ControlFlags(int(header[0])), body

    def gather(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        """See Communicator; a body too large for a collective of all ranks is sent alone, in pieces."""
        self._arrive()
        header, limit = np.array([flags, body.nbytes], dtype=np.int64), MAX_BYTES // self.size
        together = body if body.nbytes <= limit else body[:0]
        if not self.is_server:
            self._finish(self.comm.Igather(header, None, root=0))
            self._finish(self.comm.Igatherv(together, None, root=0))
            for piece in pieces(body[together.nbytes :], MAX_BYTES):
                self._finish(self.comm.Isend(piece, 0, BODY_TAG))
            return flags, []
        headers = np.empty((self.size, 2), dtype=np.int64)
        self._finish(self.comm.Igather(header, headers, root=0))
        sizes = np.where(headers[:, 1] <= limit, headers[:, 1], 0)
        ends = np.cumsum(sizes)
        gathered = np.empty(ends[-1], dtype=np.uint8)
        self._finish(self.comm.Igatherv(together, [gathered, sizes, ends - sizes, MPI.BYTE], root=0))
        bodies = np.split(gathered, ends[:-1])
        for rank in np.flatnonzero(headers[:, 1] > limit).tolist():
            bodies[rank] = body if rank == 0 else np.empty(headers[rank, 1], dtype=np.uint8)
            for piece in pieces(bodies[rank], MAX_BYTES) if rank else ():
                self._finish(self.comm.Irecv(piece, rank, BODY_TAG))
        self.traffic.nbytes += int(headers[1:].nbytes + headers[1:, 1].sum())
        return ControlFlags(int(np.bitwise_or.reduce(headers[:, 0]))), bodies

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

    def count_trained(self, clients: int) -> None:
        assert self.barrier is not None
        self.barrier.window.count_trained(self.round, clients)

    def num_trained(self) -> int:
        counted = self.barrier.num_trained(self.round) if self.barrier else 0
        return max(counted, super().num_trained())  # after the gather all are trained

    def allgather_object(self, value: Any) -> list[Any]:
        self._wait_for_all()
        return self.comm.allgather(value)

    def release(self) -> None:
        self._wait_for_all()
        if self.barrier is not None:
            self.barrier.free()
            self.barrier = None

    def close(self) -> None:
        self.release()
        if self.finalizes:
            MPI.Finalize()
        else:
            self.comm.Free()

    def abort(self, code: int) -> None:
        MPI.COMM_WORLD.Abort(code)

    def _arrive(self) -> None:
        """Waits for all ranks; what they wrote to the node's shared memory before is then visible here."""
        assert self.barrier is not None
        self.barrier.arrive()

    def _finish(self, request: MPI.Request) -> None:
        """Completes a collective that all ranks have reached, and adds its duration to the traffic."""
        assert self.barrier is not None
        start = time.perf_counter()
        self.barrier.sleep_until(request.Test, TRANSFER_SLEEP)
        self.traffic.transfer_seconds += time.perf_counter() - start

    def _wait_for_all(self) -> None:
        """Waits for all ranks, also before `setup_nodes` and after `release`, when there is no Barrier."""
        if self.barrier is not None:
            self.barrier.arrive()
            return
        barrier = self.comm.Ibarrier()
        while not barrier.Test():
            self.check_peers()
            time.sleep(LONGEST_SLEEP)


def open_world(launcher: Launcher) -> MpiCommunicator:
    """Initializes MPI and returns the communicator of all ranks."""
    return MpiCommunicator(world_comm(launcher), library_name(), finalizes=True)


def world_comm(launcher: Launcher) -> MPI.Intracomm:
    """Returns COMM_WORLD after checking its size against the launcher's; initializes MPI if necessary."""
    library = library_name()
    if launcher.open_mpi is not None and launcher.open_mpi != library.startswith("Open MPI"):
        raise Refused(
            f"{launcher.name} started {launcher.size} processes, but this Python's MPI is {library}: each "
            "would run alone; use the mpirun that belongs to this Python, beside it in its bin directory"
        )
    initializes = not MPI.Is_initialized()
    if initializes:
        MPI.Init_thread(MPI.THREAD_FUNNELED)
    if MPI.COMM_WORLD.size != launcher.size:
        seen = MPI.COMM_WORLD.size
        if initializes:
            MPI.Finalize()
        raise Refused(
            f"{launcher.name} started {launcher.size} processes, but MPI ({library}) sees {seen}: each runs "
            "alone; use the mpirun that belongs to this Python, or with srun the --mpi= that this MPI "
            "speaks (srun --mpi=list)"
        )
    return MPI.COMM_WORLD


def library_name() -> str:
    """Returns the name and version of the MPI library."""
    return " ".join(MPI.Get_library_version().split(",")[0].split("\n")[0].split())
