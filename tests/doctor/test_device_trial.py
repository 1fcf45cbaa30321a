"""`hpcfl doctor --device`: what it says of a stand-in, and without an accelerator."""

from __future__ import annotations

import re

import pytest

from hpcfl.bench.stand_in import is_possible, stand_in_devices
from hpcfl.doctor import device_trial
from hpcfl.methods.prototypes import ClassMeans

on_stand_in = pytest.mark.skipif(not is_possible(), reason="this torch has no backends in Python")


def test_without_an_accelerator(hpcfl):
    done = hpcfl("doctor", "--device", "--set=runtime.device=cpu")
    assert done.exit_code == 1
    assert "problem  accelerator   torch sees none" in done.output


def test_a_device_that_is_not_there_is_bad_input(hpcfl):
    done = hpcfl("doctor", "--device", "--set=runtime.device=xpu")
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: runtime.device = 'xpu': this node has no xpu device that torch sees\n",
    )


def test_it_takes_settings_only(hpcfl):
    done = hpcfl("doctor", "--device", "fmnist")
    assert (done.exit_code, done.output) == (2, "hpcfl: --device: goes with --set only\n")


def test_memory_is_judged():
    plan = device_trial._plan(["method.name=fedproto"])
    few, many = device_trial._memory(300_000, plan), device_trial._memory(10**8, plan)
    assert (few.level, many.level) == ("ok", "warning")
    assert "at most 293.0 KiB in use by tensors; hpcfl plan says " in few.detail


@pytest.mark.slow
@on_stand_in
def test_an_error_of_the_device_is_one_line_and_the_other_parts_go_on(hpcfl, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("device-side assert triggered\nCompile with an option to learn more")

    monkeypatch.setattr(ClassMeans, "add", fail)
    monkeypatch.setattr(device_trial, "METHODS", ("fedproto", "lg-fedavg"))
    with stand_in_devices(1):
        done = hpcfl("doctor", "--device")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert (
        "problem  fedproto      RuntimeError: device-side assert triggered -> tell the maintainers"
        in lines[3]
    )
    assert lines[4].startswith("ok       lg-fedavg     two runs are equal")
    assert lines[-2] == "hpcfl doctor: 1 problem"
    assert "send these lines to the maintainers" in lines[-1]


@pytest.mark.slow
@on_stand_in
def test_on_a_stand_in(hpcfl):
    with stand_in_devices(2):
        done = hpcfl("doctor", "--device")
    assert done.exit_code == 0, done.output
    for words in ("stand-in: 2 × standin", "float64 yes, graphs no", "all is well"):
        assert words in done.output
    assert done.output.count("ok       memory        at most ") == len(device_trial.METHODS)
    assert done.output.count("two runs are equal bit for bit") == len(device_trial.METHODS)
    assert " MiB free" in done.output or " GiB free" in done.output
    assert re.search(
        r"at most [\d.]+ (KiB|MiB) in use by tensors; hpcfl plan says [\d.]+ (KiB|MiB)", done.output
    )
    assert "send these lines to the maintainers" in done.output
