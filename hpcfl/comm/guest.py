"""A communicator that is somebody else's: a run works on a copy of it, and never ends the processes."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hpcfl.comm.launcher import Launcher
from hpcfl.comm.mpi import MPI, MpiCommunicator, library_name, world_comm
from hpcfl.errors import OtherFailed, Refused, RunFailed

FAILED = 3
"""Tag of the message by which a rank says that it cannot go on."""
_SENT: list[tuple[np.ndarray, MPI.Request]] = []
"""Such messages, kept until they have arrived."""


class GuestCommunicator(MpiCommunicator):
    """What one rank raises, the others raise where they wait for it."""

    def __init__(self, comm: MPI.Intracomm):
        super().__init__(comm.Dup(), library_name())

    def check_peers(self) -> None:
        status = MPI.Status()
        if self.comm.Iprobe(MPI.ANY_SOURCE, FAILED, status):
            text = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
            self.comm.Recv(text, status.source, FAILED)
            raise OtherFailed(f"rank {status.source}: {text.tobytes().decode(errors='replace')}")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs the block and gives all back; what only this rank raises is told to the others first.

        After that the ranks are no longer in step, and the copy is left to MPI's end.
        """
        known: Exception | None = None
        try:
            try:
                yield
            except OtherFailed:
                raise
            except (Refused, RunFailed) as error:
                known = error
            self.close()
        except OtherFailed:
            raise
        except BaseException as error:
            self._tell_others(f"{type(error).__name__}: {error}")
            raise
        if known is not None:
            raise known

    def _tell_others(self, text: str) -> None:
        body = np.frombuffer(text.encode(errors="replace")[:1000] or b"?", dtype=np.uint8)
        others = [rank for rank in range(self.size) if rank != self.rank]
        _SENT.extend((body, self.comm.Isend(body, rank, FAILED)) for rank in others)


def open_guest_comm(comm: MPI.Intracomm | None, found: Launcher | None) -> GuestCommunicator:
    """Returns a link over a communicator, or over all ranks of the launcher; MPI is left as it is."""
    if comm is None:
        assert found is not None
        started = MPI.Is_initialized()
        comm = world_comm(found)
        if not started:
            atexit.register(MPI.Finalize)
    return GuestCommunicator(comm)
