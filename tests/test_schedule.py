import numpy as np
import pytest

from hpcfl.devices import device_for
from hpcfl.errors import BadInput
from hpcfl.schedule import Pinned


def test_the_most_expensive_client_first_each_to_the_idlest_rank():
    """Costs 5 4 3 3 on two ranks: 5 → 1, 4 → 2, then 3 → 2 (4 < 5) and the last 3 → 1 (5 < 7)."""
    table = Pinned([3, 5, 3, 4], range(1, 3))
    assert table.rank_of.tolist() == [2, 1, 1, 2]
    assert table.hosted(1) == [1, 2]
    assert table.take(2, np.array([0, 1])) == [0]


def test_every_client_has_a_place_and_no_rank_is_loaded_beyond_the_bound():
    """Longest-first is within 4/3 of the best; the best is at least the mean load and the largest cost."""
    costs = np.random.default_rng(0).integers(1, 100, 57)
    table = Pinned(costs.tolist(), range(1, 8))
    loads = np.bincount(table.rank_of, weights=costs, minlength=8)
    assert loads[0] == 0
    assert loads.max() <= 4 / 3 * max(costs.sum() / 7, costs.max())
    assert sorted(i for rank in range(1, 8) for i in table.hosted(rank)) == list(range(57))


def test_more_ranks_than_clients_leave_ranks_without():
    table = Pinned([1, 1], range(1, 5))
    assert sorted(table.rank_of) == [1, 2]
    assert table.hosted(4) == []


@pytest.mark.parametrize(
    ("setting", "local_rank", "count", "device"),
    [
        ("auto", 5, 0, "cpu"),
        ("cpu", 1, 4, "cpu"),
        ("auto", 5, 4, "cuda:1"),
        ("cuda", 3, 4, "cuda:3"),
        ("cuda", 0, 1, "cuda:0"),
    ],
)
def test_the_device_follows_the_local_rank(setting, local_rank, count, device):
    assert device_for(setting, local_rank, count) == device


def test_cuda_where_there_is_none_is_bad_input():
    with pytest.raises(BadInput, match="no CUDA device"):
        device_for("cuda", 0, 0)
