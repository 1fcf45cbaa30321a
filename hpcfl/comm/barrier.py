"""How ranks wait for each other: asleep, until the last has come, and able to say who is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import numpy as np
from mpi4py import MPI

from hpcfl.comm.shared_window import SharedWindow
from hpcfl.errors import Fatal

HERE, ALIVE = 1, 2
"""Tags of the messages between nodes: all have come, or may go on; and a sign of life."""
SHORTEST_SLEEP, LONGEST_SLEEP = 2e-5, 5e-3
"""Seconds of one sleep while others still compute: a tenth of the time waited so far, within these bounds."""
ALIVE_EVERY = 0.5
"""Seconds between signs of life to other nodes."""
OTHER_NODES = 2.0
"""Seconds more that silence may last between nodes: the other node's own ranks know better."""


class Barrier:
    """The ranks of a run by node: a board on each, and small messages between the nodes' first ranks.

    A rank stirs when it waits and with every client it works on. With a time limit, a rank that has not
    moved for so long while another waited is missing: the waiting one says so and ends the run.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        pretend_nodes: int,
        counters: int,
        stall_seconds: float,
        check: Callable[[], None],
    ):
        """`check` is called now and then while a rank waits; it may raise."""
        real = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.comm = cast(MPI.Intracomm, real.Split(real.rank * pretend_nodes // real.size, world.rank))
        real.Free()
        self.ranks = self.comm.allgather(world.rank)
        by_node = sorted(set(map(tuple, world.allgather(self.ranks))))
        self.node, self.nodes = by_node.index(tuple(self.ranks)), len(by_node)
        self.by_leader = {ranks[0]: list(ranks) for ranks in by_node}
        leaders = list(self.by_leader)
        # whom this rank exchanges messages with: rank 0 with every other node's first rank
        self.peers = leaders[1:] if world.rank == 0 else [0] if world.rank in leaders else []
        self.world = world
        self.limit, self.check = stall_seconds, check
        self.window = SharedWindow(self.comm, counters + 1)
        self.reporter = counters
        self.turn = 0
        self.since = 0.0
        self.awaited_nodes: list[int] = []
        self.heard = dict.fromkeys(self.peers, 0.0)
        self.last_alive = 0.0
        self.sent: list[MPI.Request] = []

    def arrive(self) -> None:
        """Returns when every rank of the run has come here as often as this one."""
        self.turn += 1
        self.awaited_nodes, self.since = [], time.time()
        board, turn = self.window, self.turn
        board.sync()
        board.arrived[board.rank] = turn
        if self.nodes == 1 or board.rank == 0:
            self.sleep_until(lambda: bool(board.arrived.min() >= turn))
        if self.nodes > 1:
            if board.rank == 0:
                self._meet_other_nodes()
                board.sync()
                board.released[0] = turn
            else:
                self.sleep_until(lambda: bool(board.released[0] >= turn))
        board.sync()
        self.since = 0.0

    def missing_ranks(self) -> tuple[list[int], float]:
        """Returns whom this rank waits for, and since when on the system's clock; nobody: 0.

        Of another node that has not reported, all ranks. It reads memory alone, so that any thread may ask.
        """
        since, turn = self.since, self.turn
        if not since:
            return [], 0.0
        here = [rank for rank, at in zip(self.ranks, self.window.arrived.tolist(), strict=True) if at < turn]
        return here or [rank for leader in self.awaited_nodes for rank in self.by_leader[leader]], since

    def _meet_other_nodes(self) -> None:
        """A node's first rank, all of whose ranks are here, hears the same of all others, through rank 0."""
        if self.world.rank > 0:
            self._send(HERE)
        word = np.empty(1, dtype=np.int8)
        awaited = [self.world.Irecv([word, 0, MPI.BYTE], rank, HERE) for rank in self.peers]
        self.awaited_nodes = self.peers

        def all_heard() -> bool:
            came = [self.peers[place] for place in MPI.Request.Testsome(awaited) or ()]
            self.awaited_nodes = (
                [rank for rank in self.awaited_nodes if rank not in came] if came else self.awaited_nodes
            )
            return not self.awaited_nodes

        self.sleep_until(all_heard)
        if self.world.rank == 0:
            self._send(HERE)

    def _send(self, tag: int) -> None:
        """Sends an empty message to every partner, who need not await it yet."""
        self.sent = [request for request in self.sent if not request.Test()]
        word = np.empty(1, dtype=np.int8)
        self.sent += [self.world.Isend([word, 0, MPI.BYTE], rank, tag) for rank in self.peers]

    def mark_alive(self) -> None:
        """Shows that this rank is alive: to its node, and now and then to its peers.

        Looking for a message moves MPI along, too: what this rank has sent may leave only in further calls
        (seen with OFI, where the run hung), and whoever sleeps by the board makes no other.
        """
        self.window.alive[self.window.rank] += 1
        self.world.Iprobe(tag=ALIVE)
        now = time.perf_counter()
        if self.limit and self.peers and now - self.last_alive > ALIVE_EVERY:
            self.last_alive = now
            self._send(ALIVE)

    def sleep_until(self, done: Callable[[], bool], longest: float = LONGEST_SLEEP) -> None:
        """Sleeps until it is done; past the time limit, says who is missing."""
        start = time.perf_counter()
        seen, since = self.window.alive.copy(), np.full(len(self.ranks), start)
        while not done():
            self.mark_alive()
            self.check()
            now = time.perf_counter()
            if self.limit:
                moved = self.window.alive != seen
                seen[moved] = self.window.alive[moved]
                since[moved] = now
                missing = [rank for rank, at in zip(self.ranks, since, strict=True) if now - at > self.limit]
                missing = missing or self._silent_nodes(start, now)
                if missing and not done():
                    self._report_missing(missing)
            time.sleep(min(longest, max(SHORTEST_SLEEP, (now - start) / 10)))

    def _silent_nodes(self, start: float, now: float) -> list[int]:
        """Returns the peers that gave no sign of life for long."""
        word = np.empty(1, dtype=np.int8)
        for rank in self.peers:
            while self.world.Iprobe(rank, ALIVE):
                self.world.Recv([word, 0, MPI.BYTE], rank, ALIVE)
                self.heard[rank] = now
        limit = self.limit + OTHER_NODES + self.node * ALIVE_EVERY
        return [rank for rank, at in self.heard.items() if now - max(at, start) > limit]

    def _report_missing(self, missing: list[int]) -> None:
        if self.window.fetch_add(self.reporter) == 0:
            ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
            raise Fatal(f"{ranks} did not stir for {self.limit / 60:g} minutes (runtime.stall_minutes)")

    def free(self) -> None:
        MPI.Request.Waitall(self.sent)
        self.window.shared.free()
        self.comm.Free()
