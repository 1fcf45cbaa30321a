"""The stand-in device: what it refuses, what it counts, and that planted errors are caught."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from hpcfl.bench import device
from hpcfl.bench.stand_in import Counts, counted, is_possible, stand_in_devices
from hpcfl.methods.prototypes import ClassMeans
from hpcfl.training.samples import ClientSamples
from hpcfl.utils import accelerator
from hpcfl.utils.accelerator import to_device, to_host

pytestmark = pytest.mark.skipif(not is_possible(), reason="this torch has no backends in Python")


@pytest.fixture
def devices():
    with stand_in_devices(2):
        yield torch.device("standin:0"), torch.device("standin:1")


def found(work) -> Counts:
    counts = Counts()
    with counted(counts):
        work()
    return counts


def test_it_is_an_accelerator_for_a_while():
    with stand_in_devices(2):
        assert accelerator.find_accelerators("auto") == ("standin", 2)
        one, other = (torch.device("standin", n) for n in (0, 1))
        assert accelerator.identity(one) != accelerator.identity(other)
        assert accelerator.has_float64(one)
        assert not accelerator.has_graphs("standin")
        before = accelerator.free_memory(one)
        held = torch.zeros(1000, device=one)
        assert before - accelerator.free_memory(one) == held.nbytes
    assert accelerator.find_accelerators("auto")[0] != "standin"
    assert accelerator.count("standin") == 0


def test_mixed_devices_are_refused(devices):
    one, other = (torch.ones(3, device=device) for device in devices)
    for mixed in (lambda: one + other, lambda: one + torch.ones(3), lambda: torch.cat([one, other])):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    assert (one + torch.tensor(1.0)).tolist() == [2.0] * 3, "a single number of the host may be anywhere"
    with pytest.raises(TypeError, match="no numpy array"):
        one.numpy()


def test_host_syncs_are_counted(devices):
    x = torch.arange(4.0, device=devices[0])
    assert found(lambda: x.sum().item()).syncs == 1
    assert found(lambda: x[x > 1]).waits == {"index": 1}
    assert found(lambda: torch.bincount(x.long())).syncs == 1
    assert found(lambda: x.cpu()).syncs == 1
    assert found(lambda: x.masked_fill(x > 1, 0.0) @ x).syncs == 0
    assert found(lambda: torch.ones(5).to(devices[0])).syncs == 1
    copied = found(lambda: to_device(torch.ones(5), devices[0]))
    assert (copied.syncs, copied.bytes_in) == (0, 20)


def test_kernels_are_counted_without_views_and_copies(devices):
    x = torch.ones(4, 4, device=devices[0])
    assert found(lambda: x.view(16)[:8].t()).kernels == 0
    assert found(lambda: (x + 1).relu()).kernels == 2


def test_what_is_not_waited_for_is_garbage(devices):
    x = torch.full((3,), 2.0, device=devices[0])
    early = x.to("cpu", non_blocking=True)
    assert early.tolist() != [2.0] * 3
    counts = Counts()
    with counted(counts):
        one, two = to_host(x, x + 1)
    assert (one.tolist(), two.tolist(), early.tolist()) == ([2.0] * 3, [3.0] * 3, [2.0] * 3)
    assert counts.syncs == 1, "one wait for all"


def test_one_device_is_waited_for_and_not_the_current_one(devices):
    one, other = (torch.full((3,), 2.0, device=device).to("cpu", non_blocking=True) for device in devices)
    accelerator.synchronise(devices[1])
    assert (one.tolist() == [2.0] * 3, other.tolist() == [2.0] * 3) == (False, True)
    accelerator.synchronise(devices[0])
    assert one.tolist() == [2.0] * 3


def test_the_peak_of_memory_begins_again(devices):
    device = devices[0]
    held, more = torch.zeros(1000, device=device), torch.zeros(9000, device=device)
    del more
    before = accelerator.peak_memory(device) or 0
    accelerator.reset_peak_memory(device)
    after = accelerator.peak_memory(device) or 0
    assert before - 36000 >= after >= held.nbytes


def plan(*settings: str):
    return device._plan(None, ["method.name=fedproto", *settings])


def test_limits_of_a_round_and_a_planted_host_sync(monkeypatch):
    """Of a step 0, of a client 1; a value read in each batch breaks the first."""
    with stand_in_devices(1):
        short, long = (device.count_round(plan(f"train.epochs={n}")).client for n in (1, 2))
        assert (short.syncs, long.syncs) == (1, 1)
        original = ClassMeans.add
        monkeypatch.setattr(ClassMeans, "add", lambda *given: (original(*given), given[1].sum().item())[0])
        planted = device.count_round(plan("train.epochs=2", "method.prototypes=running")).client
        assert planted.syncs > long.syncs
        assert planted.waits["_local_scalar_dense"] > 0


def test_a_planted_device_mix_up(monkeypatch):
    labels: Any = ClientSamples.labels_N
    monkeypatch.setattr(ClientSamples, "labels_N", property(lambda self: labels.fget(self).cpu()))
    with stand_in_devices(1), pytest.raises(RuntimeError, match="same device"):
        device.count_round(plan())


def test_states_stay_on_the_device_within_a_bound():
    """With a cache a client's state is not copied in again; without room it is, with the same syncs."""
    with stand_in_devices(1):
        cached, not_cached = (
            device.count_round(plan(f"runtime.device_memory={share}")).client for share in (0.5, 0)
        )
    assert cached.bytes_in < not_cached.bytes_in
    assert cached.syncs == not_cached.syncs == 1


def test_plan_and_doctor_see_the_devices(hpcfl):
    with stand_in_devices(2):
        planned = hpcfl("plan", "-n", "3", "--devices", "2", "--device-memory", "0.5")
        checked = hpcfl("doctor")
    assert planned.exit_code == checked.exit_code == 0, planned.output + checked.output
    for line in ("standin:1 of node 0", "standin:0 of node 0 needs"):
        assert line in planned.output
    assert "1 rank, each sees 2 GPUs" in checked.output


@pytest.mark.slow
def test_the_whole_catalogue_keeps_within_the_limits(bench_command):
    done = bench_command("device")
    assert done.exit_code == 0, done.output
    rows = [re.split(r"\s{2,}", line.strip()) for line in done.output.splitlines()[1:] if line.strip()]
    assert [row[0] for row in rows] == list(device.CATALOGUE)
    for method, _, _, step, client, evaluation, server, *_ in rows:
        assert float(step) == 0, method
        # how many samples fedsap-ssl accepts decides its batches
        assert int(client) == (2 if method == "fedsap-ssl" else 1), method
        assert int(evaluation) <= 2, method
        assert int(server) <= 2, method
