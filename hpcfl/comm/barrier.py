"""A barrier over all ranks of a run: waiting ranks sleep instead of spinning, and stalled ranks are named."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import numpy as np
from mpi4py import MPI

from hpcfl.comm.shared_window import SharedWindow
from hpcfl.errors import Fatal

ARRIVED_TAG, ALIVE_TAG = 1, 2
"""Tags of the messages between nodes: all ranks of a node (or of all nodes) have arrived; a node is alive."""
SHORTEST_SLEEP, LONGEST_SLEEP = 2e-5, 5e-3
"""Bounds, in seconds, of one sleep while waiting; between them it is a tenth of the time waited so far."""
ALIVE_INTERVAL = 0.5
"""Seconds between two alive messages to other nodes."""
OTHER_NODE_GRACE = 2.0
"""Extra seconds before a silent node is reported: its own ranks detect a stall first and name the rank."""


class Barrier:
    """Waits for all ranks: shared memory within a node, small messages between the nodes' leaders.

    The leader of a node is its lowest rank; rank 0 exchanges messages with all other leaders. A rank
    increments its alive counter while it waits and with every client. With a time limit, a waiting rank ends
    the run, and names the stalled ranks, when another rank's counter has not changed for that long.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        pretend_nodes: int,
        counters: int,
        stall_seconds: float,
        check_peers: Callable[[], None],
    ):
        """`check_peers` is called repeatedly while a rank waits and may raise; 0 stall seconds: no limit."""
        host = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.comm = cast(MPI.Intracomm, host.Split(host.rank * pretend_nodes // host.size, world.rank))
        host.Free()
        self.ranks = self.comm.allgather(world.rank)
        ranks_by_node = sorted(set(map(tuple, world.allgather(self.ranks))))
        self.node, self.nodes = ranks_by_node.index(tuple(self.ranks)), len(ranks_by_node)
        self.ranks_by_leader = {ranks[0]: list(ranks) for ranks in ranks_by_node}
        leaders = list(self.ranks_by_leader)
        # the ranks that this rank exchanges messages with
        self.peers = leaders[1:] if world.rank == 0 else [0] if world.rank in leaders else []
        self.world = world
        self.stall_seconds, self.check_peers = stall_seconds, check_peers
        self.window = SharedWindow(self.comm, counters + 1)
        self.report_counter = counters
        self.generation = 0
        self.waiting_since = 0.0
        self.awaited_leaders: list[int] = []
        self.last_heard = dict.fromkeys(self.peers, 0.0)
        self.trained_elsewhere = {rank: np.zeros(len(ranks), np.int64) for rank, ranks in self._others()}
        """On rank 0, by leader of another node: the window's `trained` as last reported."""
        self.last_alive = 0.0
        self.pending_sends: list[MPI.Request] = []

    def arrive(self) -> None:
        """Returns when every rank of the run has called it as often as this one."""
        self.generation += 1
        self.awaited_leaders, self.waiting_since = [], time.time()
        window, generation = self.window, self.generation
        window.sync()
        window.arrived[window.rank] = generation
        if self.nodes == 1 or window.rank == 0:
            self.sleep_until(lambda: bool(window.arrived.min() >= generation))
        if self.nodes > 1:
            if window.rank == 0:
                self._sync_leaders()
                window.sync()
                window.released[0] = generation
            else:
                self.sleep_until(lambda: bool(window.released[0] >= generation))
        window.sync()
        self.waiting_since = 0.0

    def missing_ranks(self) -> tuple[list[int], float]:
        """Returns the ranks that this one waits for, and since when (Unix time); ([], 0.0): it does not wait.

        All ranks of a node whose leader has not reported count as missing. It only reads memory, so that any
        thread may call it.
        """
        since, generation = self.waiting_since, self.generation
        if not since:
            return [], 0.0
        arrived = zip(self.ranks, self.window.arrived.tolist(), strict=True)
        on_node = [rank for rank, reached in arrived if reached < generation]
        elsewhere = [rank for leader in self.awaited_leaders for rank in self.ranks_by_leader[leader]]
        return on_node or elsewhere, since

    def _others(self) -> list[tuple[int, list[int]]]:
        """Returns the leaders that this rank exchanges messages with, and their nodes' ranks."""
        return [(rank, self.ranks_by_leader[rank]) for rank in self.peers]

    def num_trained(self, round_: int) -> int:
        """Returns how many clients all ranks have trained in a round, as far as rank 0 knows."""
        elsewhere = np.concatenate([self.window.trained, *self.trained_elsewhere.values()])
        return int((elsewhere & 0xFFFFFFFF)[elsewhere >> 32 == round_].sum())

    def _sync_leaders(self) -> None:
        """A barrier of the leaders: rank 0 hears from each of them, then releases them all."""
        if self.world.rank > 0:
            self._send_to_peers(ARRIVED_TAG)
        empty = np.empty(1, dtype=np.int8)
        requests = [self.world.Irecv([empty, 0, MPI.BYTE], rank, ARRIVED_TAG) for rank in self.peers]
        self.awaited_leaders = self.peers

        def all_received() -> bool:
            received = [self.peers[index] for index in MPI.Request.Testsome(requests) or ()]
            if received:
                self.awaited_leaders = [rank for rank in self.awaited_leaders if rank not in received]
            return not self.awaited_leaders

        self.sleep_until(all_received)
        if self.world.rank == 0:
            self._send_to_peers(ARRIVED_TAG)

    def _send_to_peers(self, tag: int, body: np.ndarray | None = None) -> None:
        """Starts sending a small message to every peer; without a body it is empty."""
        self.pending_sends = [request for request in self.pending_sends if not request.Test()]
        message = np.empty(0, dtype=np.int64) if body is None else body
        self.pending_sends += [self.world.Isend([message, MPI.INT64_T], rank, tag) for rank in self.peers]

    def mark_alive(self) -> None:
        """Increments this rank's alive counter; every ALIVE_INTERVAL also sends its peers an alive message.

        To rank 0 the message says how many clients the node's ranks have trained.
        The probe also drives MPI's progress: with OFI, what a rank has sent may leave only in later MPI
        calls, and a waiting rank makes no others (a run hung without it).
        """
        self.window.alive[self.window.rank] += 1
        self.world.Iprobe(tag=ALIVE_TAG)
        now = time.perf_counter()
        if self.stall_seconds and self.peers and now - self.last_alive > ALIVE_INTERVAL:
            self.last_alive = now
            self._send_to_peers(ALIVE_TAG, self.window.trained.copy())

    def sleep_until(self, done: Callable[[], bool], longest: float = LONGEST_SLEEP) -> None:
        """Sleeps until `done()`; raises Fatal naming the stalled ranks once the time limit has passed."""
        start = time.perf_counter()
        seen, changed_at = self.window.alive.copy(), np.full(len(self.ranks), start)
        while not done():
            self.mark_alive()
            self.check_peers()
            now = time.perf_counter()
            if self.stall_seconds:
                self._receive_alive(now)
                changed = self.window.alive != seen
                seen[changed] = self.window.alive[changed]
                changed_at[changed] = now
                last_changes = zip(self.ranks, changed_at, strict=True)
                stalled = [rank for rank, last in last_changes if now - last > self.stall_seconds]
                stalled = stalled or self._silent_peers(start, now)
                if stalled and not done():
                    self._report_stalled(stalled)
            time.sleep(min(longest, max(SHORTEST_SLEEP, (now - start) / 10)))

    def _receive_alive(self, now: float) -> None:
        """Receives the alive messages that have arrived."""
        for rank in self.peers:
            while self.world.Iprobe(rank, ALIVE_TAG):
                message = np.zeros(len(self.ranks_by_leader[rank]), dtype=np.int64)
                self.world.Recv([message, MPI.INT64_T], rank, ALIVE_TAG)
                self.last_heard[rank], self.trained_elsewhere[rank] = now, message

    def _silent_peers(self, start: float, now: float) -> list[int]:
        """Returns the peers that have sent no alive message within the time limit."""
        limit = self.stall_seconds + OTHER_NODE_GRACE + self.node * ALIVE_INTERVAL
        return [rank for rank, heard in self.last_heard.items() if now - max(heard, start) > limit]

    def _report_stalled(self, stalled: list[int]) -> None:
        """Raises Fatal on the first rank of the node that calls it; the others return and are ended by it."""
        if self.window.fetch_add(self.report_counter) == 0:
            ranks = f"rank{'s' if len(stalled) > 1 else ''} {', '.join(map(str, stalled))}"
            minutes = self.stall_seconds / 60
            raise Fatal(f"{ranks} did nothing for {minutes:g} minutes (runtime.stall_minutes)")

    def free(self) -> None:
        """Frees the window and the node's communicator."""
        MPI.Request.Waitall(self.pending_sends)
        self.window.shared.free()
        self.comm.Free()
