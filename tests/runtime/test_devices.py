import pytest

from hpcfl.errors import BadInput
from hpcfl.runtime.devices import device_for


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
