"""How ranks wait for each other: asleep, until the last has come, and able to say who is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import numpy as np
from mpi4py import MPI

from hpcfl.comm.board import Board
from hpcfl.errors import Fatal

TAG = 1
SHORTEST, LONGEST = 2e-5, 5e-3
"""Seconds of one sleep while others still compute: a tenth of the time waited so far, within these bounds."""


PATIENCE_ABROAD = 3.0
"""Seconds more that a node waits before it speaks of another node, whose own ranks know better."""


class Meeting:
    """The ranks of a run by node: a board on each, and small messages between the nodes' first ranks."""

    def __init__(self, world: MPI.Intracomm, pretend_nodes: int, counters: int, stall_seconds: float):
        real = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.comm = cast(MPI.Intracomm, real.Split(real.rank * pretend_nodes // real.size, world.rank))
        self.ranks = self.comm.allgather(world.rank)
        by_node = sorted(set(map(tuple, world.allgather(self.ranks))))
        self.node, self.nodes = by_node.index(tuple(self.ranks)), len(by_node)
        self.leaders = [ranks[0] for ranks in by_node]
        self.world = world
        self.patience = stall_seconds or float("inf")
        self.board = Board(self.comm, counters + 1)
        self.speaker = counters
        self.turn = 0

    def arrive(self) -> None:
        """Returns when every rank of the run has come here as often as this one."""
        self.turn += 1
        board, turn = self.board, self.turn
        board.arrived[board.rank] = turn
        board.sync()
        if self.nodes == 1 or board.rank == 0:
            self.sleep_until(lambda: bool(board.arrived.min() >= turn))
        if self.nodes > 1:
            if self.world.rank == 0:
                self._hear_all()
            elif board.rank == 0:
                self._tell()
            else:
                self.sleep_until(lambda: bool(board.go[0] >= turn))
            board.go[0] = turn
        board.sync()

    def _hear_all(self) -> None:
        """Rank 0: waits for a word from every other node, then lets all go on."""
        word = np.empty(1, dtype=np.int8)
        heard = {rank: self.world.Irecv([word, 0, MPI.BYTE], rank, TAG) for rank in self.leaders[1:]}

        def silent() -> list[int]:
            return [rank for rank, request in heard.items() if not request.Test()]

        self.sleep_until(lambda: not silent(), abroad=silent)
        MPI.Request.Waitall([self.world.Isend([word, 0, MPI.BYTE], rank, TAG) for rank in heard])

    def _tell(self) -> None:
        """A node's first rank: tells rank 0 that all are here, and waits for its word."""
        word = np.empty(1, dtype=np.int8)
        requests = [
            self.world.Isend([word, 0, MPI.BYTE], 0, TAG),
            self.world.Irecv([word, 0, MPI.BYTE], 0, TAG),
        ]
        self.sleep_until(lambda: bool(MPI.Request.Testall(requests)))

    def sleep_until(
        self,
        done: Callable[[], bool],
        longest: float = LONGEST,
        abroad: Callable[[], list[int]] | None = None,
        limited: bool = True,
    ) -> None:
        """Sleeps until it is done; past the time limit, the node's first rank to notice says who is missing.

        `abroad` tells which ranks of other nodes are missing; without, rank 0 is the one that would know. A
        wait that others end when they have done their work is not `limited`.
        """
        start = time.perf_counter()
        while not done():
            waited = time.perf_counter() - start
            if limited and waited > self.patience:
                missing = self._asleep()
                if not missing and abroad and waited > self.patience + PATIENCE_ABROAD:
                    missing = abroad()
                if not missing and waited > self.patience + 2 * PATIENCE_ABROAD:
                    missing = [0]
                self._speak_of(missing, waited)
            self.board.beats[self.board.rank] += 1
            time.sleep(min(longest, max(SHORTEST, waited / 10)))

    def _speak_of(self, missing: list[int], waited: float) -> None:
        if missing and self.board.take(self.speaker) == 0:
            ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
            raise Fatal(f"{ranks} did not come for {waited / 60:.2f} minutes")

    def _asleep(self) -> list[int]:
        """Returns the other ranks of this node that do not wait as this one does: who waits, stirs."""
        before = self.board.beats.copy()
        for _ in range(50):
            self.board.beats[self.board.rank] += 1
            time.sleep(0.02)
        return [rank for rank, still in zip(self.ranks, self.board.beats == before, strict=True) if still]

    def free(self) -> None:
        self.board.shared.free()
