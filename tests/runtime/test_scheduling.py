import heapq
import itertools
import threading
import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.comm.serial import SerialCommunicator
from hpcfl.runtime.scheduling import ClientQueue, CoreLimiter, CostModel, Pool, assign_clients, pools


def test_ranks_that_share_a_device_of_a_node_are_a_pool():
    places = [(0, "cpu"), (0, "gpu-a"), (0, "gpu-b"), (0, "gpu-a"), (1, "gpu-a")]
    shared = pools(places, range(1, 5), pinned=False)
    assert shared == [Pool(0, (1, 3)), Pool(0, (2,)), Pool(1, (4,))]
    assert [pool.ranks for pool in pools(places, range(1, 5), pinned=True)] == [(1,), (2,), (3,), (4,)]


def test_the_most_expensive_client_first_each_to_the_idlest_rank():
    """Costs 5 4 3 3 on two ranks: 5 → first, 4 → second, then 3 → second (4 < 5), 3 → first (5 < 7)."""
    assert assign_clients([3, 5, 3, 4], pools([(0, "cpu")] * 3, range(1, 3), pinned=True)) == [1, 0, 0, 1]


def test_a_pool_gets_clients_in_proportion_to_its_ranks():
    pool_of = assign_clients([1.0] * 40, [Pool(0, (1, 2, 3)), Pool(1, (4,))])
    assert pool_of.count(0) == 30


def test_no_rank_is_loaded_beyond_the_bound_of_longest_first():
    """Longest-first is within 4/3 of the best; the best is at least the mean load and the largest cost."""
    costs = np.random.default_rng(0).integers(1, 100, 57)
    pool_of = assign_clients(costs.tolist(), pools([(0, "cpu")] * 8, range(1, 8), pinned=True))
    loads = np.bincount(pool_of, weights=costs, minlength=7)
    assert loads.max() <= 4 / 3 * max(costs.sum() / 7, costs.max())


class Node:
    """Ranks of one pool that draw from one counter, in an order that the test chooses."""

    def __init__(self, ranks: int, clients: int):
        pool = Pool(0, tuple(range(1, ranks + 1)))
        numbers = SerialCommunicator()
        numbers.setup_nodes(1, 0)
        self.rosters = [ClientQueue([0] * clients, [pool], rank, numbers) for rank in pool.ranks]

    def interleave(self, work, rng: np.random.Generator) -> list[list[int]]:
        """Returns what each rank gets when ranks come for more in a random order."""
        iterators = [work(queue) for queue in self.rosters]
        got: list[list[int]] = [[] for _ in iterators]
        waiting = list(range(len(iterators)))
        while waiting:
            rank = rng.choice(waiting)
            try:
                got[rank].append(next(iterators[rank]))
            except StopIteration:
                waiting.remove(rank)
        return got


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 10**6))
def test_whoever_comes_when_every_client_is_trained_and_looked_at_once(ranks, clients, seed):
    rng = np.random.default_rng(seed)
    node = Node(ranks, clients)
    stale = set(range(clients))
    for _ in range(6):
        chosen = rng.choice(clients, rng.integers(1, clients + 1), replace=False)
        costs = rng.random(clients)
        got = node.interleave(lambda queue, c=chosen, k=costs: queue.to_train(c, k), rng)
        assert sorted(itertools.chain(*got)) == sorted(chosen)
        stale |= set(chosen.tolist())
        if rng.random() < 0.3:
            continue  # a round without evaluation
        wanted_M = rng.random(clients) < 0.7
        looks = node.interleave(lambda queue, wanted_M=wanted_M: queue.to_evaluate(wanted_M), rng)
        assert sorted(itertools.chain(*looks)) == [i for i in sorted(stale) if wanted_M[i]]
        for trained, looked in zip(got, looks, strict=True):
            own = [i for i in trained if wanted_M[i]]
            assert looked[: len(own)] == own
        shares = [list(queue.own_share()) for queue in node.rosters]
        assert sorted(itertools.chain(*shares)) == list(range(clients))
        shares = [list(queue.own_share(wanted_M)) for queue in node.rosters]
        assert sorted(itertools.chain(*shares)) == np.flatnonzero(wanted_M).tolist()
        stale = {i for i in stale if not wanted_M[i]}


def test_a_queue_begins_with_the_most_expensive():
    node = Node(1, 4)
    (queue,) = node.rosters
    assert list(queue.to_train(np.array([0, 1, 3]), np.array([1.0, 5.0, 9.0, 5.0]))) == [1, 3, 0]


def test_a_rank_without_a_pool_does_nothing():
    queue = ClientQueue([0, 0], [Pool(0, (1,))], 0, SerialCommunicator())
    assert list(queue.to_train(np.array([0, 1]), np.ones(2))) == []
    assert list(queue.to_evaluate(np.ones(2, dtype=bool))) == []
    assert list(queue.own_share()) == []


def test_no_more_ranks_work_at_a_time_than_the_gate_has_places():
    """Threads stand for ranks: nine of them, three places, and never a fourth inside."""
    lock, inside, most, value = threading.Lock(), 0, 0, 0

    class Numbers:
        def fetch_add(self, counter: int, by: int = 1) -> int:
            nonlocal value
            with lock:
                value += by
                return value - by

        def read_counter(self, counter: int) -> int:
            return value

        def mark_alive(self) -> None:
            pass

        def wait_below(self, counter: int, limit: int) -> None:
            while value >= limit:
                time.sleep(0.0005)

    def work() -> None:
        nonlocal inside, most
        gate = CoreLimiter(Numbers(), 0, 3)
        for _ in range(20):
            gate.enter()
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.0005)
            with lock:
                inside -= 1
            gate.leave()

    threads = [threading.Thread(target=work) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    assert value == 0


def makespan(queue: list[float], ranks: int) -> float:
    """Returns when the last rank is done if a free rank always takes the next."""
    free = [0.0] * ranks
    for cost in queue:
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


def test_with_20_of_100_clients_a_pool_is_done_before_a_fixed_table():
    """Four workers, 100 clients of mixed cost, 20 of them a round: counted over 50 rounds."""
    rng = np.random.default_rng(0)
    costs = rng.choice([1.0, 2.0, 4.0, 8.0], 100) * rng.integers(10, 100, 100)
    table = np.array(assign_clients(costs.tolist(), pools([(0, "cpu")] * 5, range(1, 5), pinned=True)))
    pooled, pinned, best = 0.0, 0.0, 0.0
    for _ in range(50):
        chosen = rng.choice(100, 20, replace=False)
        pooled += makespan(sorted(costs[chosen], reverse=True), 4)
        pinned += max(costs[chosen][table[chosen] == rank].sum() for rank in range(4))
        best += max(costs[chosen].sum() / 4, costs[chosen].max())
    assert pooled < 0.8 * pinned
    assert pooled < 1.1 * best


def test_measured_seconds_correct_the_cost_of_an_architecture():
    """Architecture 1 takes three times as long per FLOP as 0: a client of 2 then costs more than one of 5."""
    costs = CostModel([10, 10, 5, 2], [0, 1, 0, 1])
    assert costs.of_clients().tolist() == [10, 10, 5, 2]
    costs.measure(np.array([1.0, 3.0, np.nan, np.nan]))
    assert costs.of_clients().tolist() == [10, 10, 5, 2], "not before all ranks know"
    costs.rate_A[:] = costs.measured_A
    np.testing.assert_allclose(costs.of_clients(), [1.0, 3.0, 0.5, 0.6])


def test_an_architecture_not_yet_measured_is_taken_for_an_average_one():
    costs = CostModel([10, 10], [0, 1])
    costs.measure(np.array([2.0, np.nan]))
    np.testing.assert_allclose(costs.measured_A, [0.2, 0.2])
