import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from hpcfl.errors import BadInput
from hpcfl.runtime.device_memory import DeviceMemory, divide_memory
from hpcfl.runtime.devices import device_for, torch_threads
from hpcfl.utils import accelerator


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
    assert device_for(setting, local_rank, "cuda", count) == device


def test_cuda_where_there_is_none_is_bad_input():
    with pytest.raises(BadInput, match="no cuda device"):
        device_for("cuda", 0, "cuda", 0)


def test_the_start_of_a_rank_does_not_load_the_compiler_of_torch():
    """It would take half of the start-up."""
    program = (
        "import sys; from hpcfl.config.schema import RuntimeConfig; "
        "from hpcfl.runtime.devices import set_up_torch, use_deterministic_algorithms; "
        "set_up_torch(RuntimeConfig(), 0, on='cpu'); "
        "print(sorted({'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules))); "
        "import torch; use_deterministic_algorithms(True); "
        "print(torch.are_deterministic_algorithms_enabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]


def test_threads_are_set_for_a_while():
    before = torch.get_num_threads()
    with torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before


def test_free_memory_holds_the_data_if_they_fit_and_then_states(monkeypatch):
    monkeypatch.setattr(accelerator, "free_memory", lambda device: 1000)
    gpu = torch.device("cuda", 0)
    assert divide_memory(gpu, 0.5, 1, data=300) == DeviceMemory(True, 200)
    assert divide_memory(gpu, 0.5, 2, data=300) == DeviceMemory(False, 250)
    assert divide_memory(gpu, 0.0, 1, data=300) == DeviceMemory(False, 0)
    assert divide_memory(torch.device("cpu"), 0.5, 1, data=300) == DeviceMemory(False, 0)


def test_an_apple_gpu_says_what_is_free_if_its_torch_can(monkeypatch):
    functions = SimpleNamespace(recommended_max_memory=lambda: 1000, driver_allocated_memory=lambda: 300)
    monkeypatch.setattr(torch, "mps", functions)
    assert accelerator.free_memory(torch.device("mps", 0)) == 700
    del functions.recommended_max_memory  # before torch 2.5
    assert accelerator.free_memory(torch.device("mps", 0)) == 0
