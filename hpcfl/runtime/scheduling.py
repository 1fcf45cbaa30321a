"""Who trains whom. Clients belong to a device; the ranks that share it take them one by one.

Nothing here changes results: whoever trains a client, in whatever order, its bits are the same.
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
    """Ranks of one node that share a device, and so its clients."""

    node: int
    ranks: tuple[int, ...]


def pools(places: Sequence[tuple[int, str]], workers: Iterable[int], pinned: bool) -> list[Pool]:
    """Returns the pools of a run: the workers by (node, device), or each alone where clients are pinned."""
    if pinned:
        return [Pool(places[rank][0], (rank,)) for rank in workers]
    members: dict[tuple[int, str], list[int]] = {}
    for rank in workers:
        members.setdefault(places[rank], []).append(rank)
    return [Pool(node, tuple(ranks)) for (node, _), ranks in members.items()]


def assign_clients(costs: Sequence[float], pools: Sequence[Pool]) -> list[int]:
    """Returns each client's pool: the most expensive first, each to where a rank has least to do so far."""
    pool_of = [0] * len(costs)
    heap = [(0.0, number) for number in range(len(pools))]
    for client in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, number = heapq.heappop(heap)
        pool_of[client] = number
        heapq.heappush(heap, (load + costs[client] / len(pools[number].ranks), number))
    return pool_of


class CostModel:
    """What a client's round is expected to cost: samples × FLOPs, corrected by measured seconds.

    The correction is one rate per architecture. Rank 0 measures and tells: queues must be alike on all ranks.
    """

    def __init__(self, work_M: Sequence[float], architecture_M: Sequence[int]):
        """`work_M` is samples × FLOPs of each client, `architecture_M` the number of its architecture."""
        self.work_M, self.architecture_M = np.asarray(work_M, dtype=np.float64), np.asarray(architecture_M)
        architectures = int(self.architecture_M.max()) + 1
        self.rate_A, self.measured_A = np.ones(architectures), np.ones(architectures)
        self.seconds_A, self.done_A = np.zeros(architectures), np.zeros(architectures)

    def of_clients(self) -> np.ndarray:
        """Returns the expected cost of each client."""
        return self.work_M * self.rate_A[self.architecture_M]

    def measure(self, seconds_M: np.ndarray) -> None:
        """Learns from a round's seconds, NaN where a client did not train; holds once it is told to all."""
        trained = np.flatnonzero(~np.isnan(seconds_M))
        np.add.at(self.seconds_A, self.architecture_M[trained], seconds_M[trained])
        np.add.at(self.done_A, self.architecture_M[trained], self.work_M[trained])
        if self.seconds_A.sum():  # one not yet seen is taken for an average one
            average = self.seconds_A.sum() / self.done_A.sum()
            self.measured_A = np.where(self.done_A > 0, self.seconds_A / self.done_A.clip(min=1), average)


class NodeCounters(Protocol):
    """Counters that the ranks of a node share."""

    def fetch_add(self, counter: int, by: int = 1) -> int:
        """Returns a counter and advances it, in one step."""

    def read_counter(self, counter: int) -> int:
        """Returns a counter, perhaps a moment old."""

    def wait_below(self, counter: int, limit: int) -> None:
        """Sleeps until a counter is seen below a limit."""

    def mark_alive(self) -> None:
        """Shows that this rank is alive."""


class CoreLimiter:
    """Lets no more ranks work at a time than there are cores for them; the others sleep.

    Sharing a core by turns costs a third more: whoever comes back finds its caches full of others' data.
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
    """Gives this rank the clients that it trains, evaluates, and has an even share of.

    Every rank of a pool has the same list; a counter of the node hands out its places. Two counters alternate:
    all ranks meet between one list and the next, so while one counter is used, the pool's first rank resets
    the other.
    """

    def __init__(
        self,
        pool_of: Sequence[int],
        pools: Sequence[Pool],
        rank: int,
        counters: NodeCounters,
        limiter: CoreLimiter | None = None,
    ):
        mine = [number for number, pool in enumerate(pools) if rank in pool.ranks]
        self.pool = pools[mine[0]] if mine else Pool(-1, ())
        self.clients = [i for i, number in enumerate(pool_of) if number in mine]
        on_node = [number for number, pool in enumerate(pools) if pool.node == self.pool.node]
        self.counter = 2 * on_node.index(mine[0]) if mine else 0
        self.place = self.pool.ranks.index(rank) if mine else 0
        self.counters, self.limiter = counters, limiter
        self.stale = set(self.clients)
        self.participants_here: set[int] = set()
        self.trained: list[int] = []

    def to_train(self, participants: np.ndarray, costs: np.ndarray) -> Iterator[int]:
        """Yields the participants that this rank trains, the most expensive first."""
        self.participants_here = set(participants.tolist()) & set(self.clients)
        self.stale |= self.participants_here
        self.trained = []
        for i in self._draw(sorted(self.participants_here, key=lambda i: (-costs[i], i))):
            self.trained.append(i)
            yield i

    def to_evaluate(self) -> Iterator[int]:
        """Yields the clients that this rank evaluates: those it just trained, then others that are stale."""
        yield from self._one_by_one(self.trained)
        yield from self._draw(sorted(self.stale - self.participants_here))
        self.stale.clear()

    def own_share(self) -> Iterator[int]:
        """Yields this rank's even share of the pool's clients, without a counter."""
        return self._one_by_one(self.clients[self.place :: max(1, len(self.pool.ranks))])

    def _draw(self, clients: Sequence[int]) -> Iterator[int]:
        """Yields the clients of a list that this rank draws from the shared counter, one at a time."""
        if len(self.pool.ranks) < 2:
            yield from self._one_by_one(clients)
            return
        self.counter ^= 1
        if self.place == 0:
            self.counters.fetch_add(self.counter ^ 1, -self.counters.read_counter(self.counter ^ 1))
        while self.counters.read_counter(self.counter) < len(clients):
            with self._limited():
                place = self.counters.fetch_add(self.counter)
                if place < len(clients):
                    yield clients[place]

    def _one_by_one(self, clients: Iterable[int]) -> Iterator[int]:
        for i in clients:
            with self._limited():
                yield i

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Holds one of the node's cores for the work on one client."""
        self.counters.mark_alive()
        if self.limiter:
            self.limiter.enter()
        yield
        if self.limiter:
            self.limiter.leave()


def makespan(costs: Sequence[float], slots: int) -> float:
    """Returns when the last of these is done if each free slot takes the largest that is left."""
    busy = [0.0] * slots
    for cost in sorted(costs, reverse=True):
        heapq.heappush(busy, heapq.heappop(busy) + cost)
    return max(busy)
