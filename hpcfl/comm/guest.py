"""A communicator that belongs to the caller: a run works on a duplicate and never ends the processes."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hpcfl.comm.launcher import Launcher
from hpcfl.comm.mpi import MPI, MpiCommunicator, library_name, world_comm
from hpcfl.errors import OtherFailed, Refused, RunFailed

FAILED_TAG = 3
"""Tag of the message with which a rank sends its exception to the others."""
_PENDING_SENDS: list[tuple[np.ndarray, MPI.Request]] = []
"""Buffers and requests of such messages; the buffers must live until they have been received."""


class GuestCommunicator(MpiCommunicator):
    """A communicator on which an exception of one rank is raised on all ranks that wait for it."""

    def __init__(self, comm: MPI.Intracomm):
        super().__init__(comm.Dup(), library_name())

    def check_peers(self) -> None:
        """Raises OtherFailed if another rank has sent an exception."""
        status = MPI.Status()
        if self.comm.Iprobe(MPI.ANY_SOURCE, FAILED_TAG, status):
            text = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
            self.comm.Recv(text, status.source, FAILED_TAG)
            raise OtherFailed(f"rank {status.source}: {text.tobytes().decode(errors='replace')}")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs the block, then closes; an exception that only this rank raises is first sent to the others.

        After such an exception the ranks are out of step, so the duplicate is not freed before MPI ends.
        """
        raised_on_all: Exception | None = None
        try:
            try:
                yield
            except OtherFailed:
                raise
            except (Refused, RunFailed) as error:
                raised_on_all = error
            self.close()
        except OtherFailed:
            raise
        except BaseException as error:
            self._send_failure(f"{type(error).__name__}: {error}")
            raise
        if raised_on_all is not None:
            raise raised_on_all

    def _send_failure(self, text: str) -> None:
        body = np.frombuffer(text.encode(errors="replace")[:1000] or b"?", dtype=np.uint8)
        others = [rank for rank in range(self.size) if rank != self.rank]
        _PENDING_SENDS.extend((body, self.comm.Isend(body, rank, FAILED_TAG)) for rank in others)


def open_guest_comm(comm: MPI.Intracomm | None, launcher: Launcher | None) -> GuestCommunicator:
    """Returns a guest of `comm`, or of all ranks that the launcher started; closing it leaves MPI running."""
    if comm is None:
        assert launcher is not None
        was_initialized = MPI.Is_initialized()
        comm = world_comm(launcher)
        if not was_initialized:
            atexit.register(MPI.Finalize)
    return GuestCommunicator(comm)
