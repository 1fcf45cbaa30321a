"""How ranks wait for each other: asleep, until the last has come, and able to say who is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import numpy as np
from mpi4py import MPI

from hpcfl.comm.board import Board
from hpcfl.errors import Stalled

SHORTEST, LONGEST = 2e-5, 5e-3
"""Seconds of one sleep while others still compute: a tenth of the time waited so far, within these bounds."""


class Meeting:
    """The ranks of a run by node: a board on each, and one barrier between the nodes' first ranks."""

    def __init__(self, world: MPI.Intracomm, pretend_nodes: int, counters: int, stall_seconds: float):
        real = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.comm = cast(MPI.Intracomm, real.Split(real.rank * pretend_nodes // real.size, world.rank))
        leads = self.comm.rank == 0
        leaders = world.Split(0 if leads else MPI.UNDEFINED, world.rank)
        here = np.array([leaders.rank, leaders.size] if leads else [0, 0], dtype=np.int64)
        self.comm.Bcast(here, root=0)
        self.node, self.nodes = int(here[0]), int(here[1])
        self.leaders = leaders if leads and self.nodes > 1 else None
        self.world_ranks = self.comm.allgather(world.rank)
        self.patience = stall_seconds + 0.2 * world.rank if stall_seconds else float("inf")
        self.board = Board(self.comm, counters)
        self.turn = 0

    def arrive(self) -> None:
        """Returns when every rank of the run has come here as often as this one."""
        self.turn += 1
        board, turn = self.board, self.turn
        board.arrived[board.rank] = turn
        board.sync()
        if self.nodes == 1 or self.leaders is not None:
            self.sleep_until(lambda: bool(board.arrived.min() >= turn))
        if self.leaders is not None:
            self.sleep_until(self.leaders.Ibarrier().Test)
            board.go[0] = turn
        elif self.nodes > 1:
            self.sleep_until(lambda: bool(board.go[0] >= turn))
        board.sync()

    def sleep_until(self, done: Callable[[], bool], longest: float = LONGEST) -> None:
        """Sleeps until it is done; with a time limit, ends the wait by naming who is missing."""
        start = time.perf_counter()
        while not done():
            waited = time.perf_counter() - start
            if waited > self.patience:
                raise Stalled(f"{self._missing()} did not come for {waited / 60:.1f} minutes")
            self.board.beats[self.board.rank] += 1
            time.sleep(min(longest, max(SHORTEST, waited / 10)))

    def _missing(self) -> str:
        """Names the ranks of this node that have not come; if all have, those that do not stir."""
        board = self.board
        missing = board.arrived < self.turn
        if not missing.any():
            before = board.beats.copy()
            time.sleep(1)
            missing = board.beats == before
            missing[board.rank] = False
        ranks = [rank for rank, is_missing in zip(self.world_ranks, missing, strict=True) if is_missing]
        if not ranks:
            return "a rank of another node"
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

    def free(self) -> None:
        self.board.shared.free()
