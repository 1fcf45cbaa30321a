"""States kept on a device: the bound, the order in which they leave, and clients that move between ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hpcfl.algorithms.build import build_algorithm
from hpcfl.bench.stand_in import is_possible, stand_in_devices
from hpcfl.bench.step_comparison import make_worker
from hpcfl.config.loading import load_config
from hpcfl.engine.state_cache import StateCache
from hpcfl.engine.worker import Worker
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.runtime.device_memory import DeviceMemory
from hpcfl.training.client_layout import networks_of_clients
from hpcfl.training.step.options import all_step_options

on_stand_in = pytest.mark.skipif(not is_possible(), reason="this torch has no backends in Python")
SETTINGS = [
    *("federation.clients=4", "data.samples_per_class=100", "partition.alpha=1.0"),
    *("models.list=['mlp_64']", "runtime.step=plain"),
]


def state(nbytes: int) -> Tensor:
    return torch.zeros(nbytes, dtype=torch.uint8)


def test_the_bound_holds_and_those_trained_longest_ago_leave():
    cache = StateCache(100)
    for client, nbytes in ((0, 40), (1, 40), (2, 20), (0, 40), (3, 30)):
        cache.put(client, 1, state(nbytes))
        assert cache.nbytes == sum(kept.nbytes for _, kept in cache.entries.values()) <= 100
    assert list(cache.entries) == [2, 0, 3]
    cache.put(0, 2, state(101))
    assert list(cache.entries) == [2, 3], "what is larger than all room is not kept, nor its last state"


def test_an_entry_counts_only_if_it_is_as_new_as_the_arena():
    cache, kept = StateCache(100), state(40)
    cache.put(0, 3, kept)
    kept += 1
    found = cache.get(0, 3)
    assert found is not None
    assert found.sum() == 0, "it is a copy"
    assert cache.get(0, 4) is None
    assert (cache.entries, cache.nbytes) == ({}, 0)


def train(plan: RunPlan, device: torch.device, cache: int, ranks: int) -> tuple[list[Tensor], list[Worker]]:
    """Returns the states of all clients after five rounds, and ranks that had each client in turn."""
    algorithm = build_algorithm(plan, device)
    options = all_step_options(plan.config.runtime, device.type, networks_of_clients(plan, algorithm))
    first = make_worker(plan, device, options, algorithm, DeviceMemory(True, cache))
    ids = range(len(plan.clients))
    workers = [first, *(Worker(first.ctx, ids) for _ in range(1, ranks))]
    for worker in workers:
        worker.receive(algorithm.initial())
    for t, rank in enumerate((0, 0, 1, 0, 1)):
        for i in ids:
            workers[rank % ranks].train_client(t, i)
    return [first.ctx.records.state(i).clone() for i in ids], workers


def moved_states_are_equal(states_kept: float) -> bool:
    """Returns whether clients that move between two ranks, with room for some states, end as on one CPU."""
    plan = plan_run(load_config(None, SETTINGS))
    want, _ = train(plan, torch.device("cpu"), 0, 1)
    with stand_in_devices(1):
        cache = int(states_kept * want[0].nbytes)
        got, workers = train(plan, torch.device("standin:0"), cache, 2)
        assert all(worker.cache.nbytes <= cache for worker in workers)
        assert {len(worker.cache.entries) for worker in workers} == {min(int(states_kept), len(want))}
    return all(map(torch.equal, got, want))


@on_stand_in
@pytest.mark.parametrize("states_kept", [0, 2.5, 100])
def test_clients_that_move_between_ranks_end_as_on_the_cpu(states_kept):
    assert moved_states_are_equal(states_kept)


@on_stand_in
def test_a_planted_old_state_is_noticed(monkeypatch):
    """Without the number of times that a state was stored, a rank would go on with what it had."""
    monkeypatch.setattr(
        StateCache, "get", lambda cache, client, stored: cache.entries.get(client, (0, None))[1]
    )
    assert not moved_states_are_equal(100)
