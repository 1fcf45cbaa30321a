"""Scheduling: clients are assigned to a device, whose ranks train them from a common queue.

Nothing here changes results: a client's bits do not depend on the rank that trains it or on the order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Pool:
    """Ranks of one node that share a device and the clients assigned to it."""

    node: int
    ranks: tuple[int, ...]


def pools(devices: Sequence[tuple[int, str]], workers: Iterable[int], pinned: bool) -> list[Pool]:
    """Returns the pools of a run: the workers grouped by (node, device), or if pinned one pool per worker."""
    if pinned:
        return [Pool(devices[rank][0], (rank,)) for rank in workers]
    members: dict[tuple[int, str], list[int]] = {}
    for rank in workers:
        members.setdefault(devices[rank], []).append(rank)
    return [Pool(node, tuple(ranks)) for (node, _), ranks in members.items()]


def assign_clients(costs: Sequence[float], pools: Sequence[Pool]) -> list[int]:
    """Returns each client's pool: the most expensive client first, each to the pool with the least cost.

    The cost of a pool is divided by the number of its ranks.
    """
    pool_of = [0] * len(costs)
    heap = [(0.0, number) for number in range(len(pools))]
    for client in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, number = heapq.heappop(heap)
        pool_of[client] = number
        heapq.heappush(heap, (load + costs[client] / len(pools[number].ranks), number))
    return pool_of


class CostModel:
    """Expected cost of a client's round: samples × FLOPs × a measured rate per architecture.

    Rank 0 measures (`measured_A`) and broadcasts the rates (`rate_A`), because queues must be equal on all
    ranks.
    """

    def __init__(self, work_M: Sequence[float], architecture_M: Sequence[int]):
        """`work_M` is samples × FLOPs of each client, `architecture_M` the number of its architecture."""
        self.work_M, self.architecture_M = np.asarray(work_M, dtype=np.float64), np.asarray(architecture_M)
        architectures = int(self.architecture_M.max()) + 1
        self.rate_A, self.measured_A = np.ones(architectures), np.ones(architectures)
        self.seconds_A, self.done_A = np.zeros(architectures), np.zeros(architectures)

    @property
    def header_bytes(self) -> int:
        """Bytes at the start of a broadcast: the rates, and whether a download follows, all as float64."""
        return self.rate_A.nbytes + 8

    def of_clients(self) -> np.ndarray:
        """Returns the expected cost of each client."""
        return self.work_M * self.rate_A[self.architecture_M]

    def measure(self, seconds_M: np.ndarray) -> None:
        """Updates `measured_A` with the seconds of a round, NaN for clients that did not train."""
        trained = np.flatnonzero(~np.isnan(seconds_M))
        np.add.at(self.seconds_A, self.architecture_M[trained], seconds_M[trained])
        np.add.at(self.done_A, self.architecture_M[trained], self.work_M[trained])
        if self.seconds_A.sum():  # an architecture not yet measured gets the average rate
            average = self.seconds_A.sum() / self.done_A.sum()
            self.measured_A = np.where(self.done_A > 0, self.seconds_A / self.done_A.clip(min=1), average)


class NodeCounters(Protocol):
    """Atomic counters that the ranks of a node share; a `Communicator` has them."""

    def fetch_add(self, counter: int, by: int = 1) -> int:
        """Adds to a counter atomically and returns its value before."""

    def read_counter(self, counter: int) -> int:
        """Returns a counter, which may be slightly out of date."""

    def wait_below(self, counter: int, limit: int) -> None:
        """Sleeps until a counter is below a limit."""

    def mark_alive(self) -> None:
        """Tells the other ranks that this one is alive."""


class CoreLimiter:
    """A semaphore: at most `slots` ranks work at a time, one per core; the others sleep.

    Ranks that share a core by time slices need a third longer, because they evict each other's caches.
    """

    def __init__(self, counters: NodeCounters, counter: int, slots: int):
        self.counters, self.counter, self.slots = counters, counter, slots

    def enter(self) -> None:
        while self.counters.fetch_add(self.counter) >= self.slots:
            self.counters.fetch_add(self.counter, -1)
            self.counters.wait_below(self.counter, self.slots)

    def leave(self) -> None:
        self.counters.fetch_add(self.counter, -1)


class ClientQueue:
    """Yields the clients that this rank trains and evaluates, and its even share of the pool's clients.

    Every rank of a pool has the same list; a counter of the node gives out its indices. Two counters
    alternate: all ranks pass a barrier between two lists, so while one counter is in use, the pool's first
    rank resets the other.
    """

    def __init__(
        self,
        pool_of: Sequence[int],
        pools: Sequence[Pool],
        rank: int,
        counters: NodeCounters,
        limiter: CoreLimiter | None = None,
    ):
        own = [number for number, pool in enumerate(pools) if rank in pool.ranks]  # empty for a pure server
        self.pool = pools[own[0]] if own else Pool(-1, ())
        self.clients = [i for i, number in enumerate(pool_of) if number in own]
        on_node = [number for number, pool in enumerate(pools) if pool.node == self.pool.node]
        self.counter = 2 * on_node.index(own[0]) if own else 0
        self.rank_in_pool = self.pool.ranks.index(rank) if own else 0
        self.counters, self.limiter = counters, limiter
        self.stale = set(self.clients)  # not evaluated since they were initialised or trained
        self.participants: set[int] = set()
        self.trained: list[int] = []

    def to_train(self, participants: np.ndarray, costs: np.ndarray) -> Iterator[int]:
        """Yields the participants that this rank trains, the most expensive first."""
        self.participants = set(participants.tolist()) & set(self.clients)
        self.stale |= self.participants
        self.trained = []
        for i in self._draw(sorted(self.participants, key=lambda i: (-costs[i], i))):
            self.trained.append(i)
            yield i

    def to_evaluate(self, evaluated_M: np.ndarray) -> Iterator[int]:
        """Yields the clients that this rank evaluates: those it has just trained, then other stale ones."""
        stale = {i for i in self.stale if evaluated_M[i]}
        yield from self._one_by_one([i for i in self.trained if evaluated_M[i]])
        yield from self._draw(sorted(stale - self.participants))
        self.stale -= stale

    def own_share(self, wanted_M: np.ndarray | None = None) -> Iterator[int]:
        """Yields this rank's even share of the pool's clients, or of the wanted ones; it needs no counter."""
        clients = self.clients if wanted_M is None else [i for i in self.clients if wanted_M[i]]
        return self._one_by_one(clients[self.rank_in_pool :: max(1, len(self.pool.ranks))])

    def _draw(self, clients: Sequence[int]) -> Iterator[int]:
        """Yields the clients of a list whose indices this rank gets from the shared counter."""
        if len(self.pool.ranks) < 2:
            yield from self._one_by_one(clients)
            return
        self.counter ^= 1
        if self.rank_in_pool == 0:
            self.counters.fetch_add(self.counter ^ 1, -self.counters.read_counter(self.counter ^ 1))
        while self.counters.read_counter(self.counter) < len(clients):
            with self._limited():
                index = self.counters.fetch_add(self.counter)
                if index < len(clients):
                    yield clients[index]

    def _one_by_one(self, clients: Iterable[int]) -> Iterator[int]:
        for i in clients:
            with self._limited():
                yield i

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Holds a slot of the core limiter while one client is worked on."""
        self.counters.mark_alive()
        if self.limiter:
            self.limiter.enter()
        yield
        if self.limiter:
            self.limiter.leave()


def makespan(costs: Sequence[float], slots: int) -> float:
    """Returns when the last job ends if each free slot takes the most expensive remaining one."""
    busy = [0.0] * slots
    for cost in sorted(costs, reverse=True):
        heapq.heappush(busy, heapq.heappop(busy) + cost)
    return max(busy)
