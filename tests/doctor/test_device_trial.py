"""`hpcfl doctor --device`: what it says of a stand-in, and without an accelerator."""

from __future__ import annotations

import re

import pytest

from hpcfl.bench.stand_in import is_possible, stand_in_devices
from hpcfl.doctor import device_trial


def test_without_an_accelerator(hpcfl):
    done = hpcfl("doctor", "--device", "--set=runtime.device=cpu")
    assert done.exit_code == 1
    assert "problem  accelerator   torch sees none" in done.output


def test_it_takes_settings_only(hpcfl):
    done = hpcfl("doctor", "--device", "fmnist")
    assert (done.exit_code, done.output) == (2, "hpcfl: --device: goes with --set only\n")


@pytest.mark.slow
@pytest.mark.skipif(not is_possible(), reason="this torch has no backends in Python")
def test_on_a_stand_in(hpcfl):
    with stand_in_devices(2):
        done = hpcfl("doctor", "--device")
    assert done.exit_code == 0, done.output
    for words in ("stand-in: 2 × standin", "float64 yes, graphs no", "in use by tensors", "all is well"):
        assert words in done.output
    assert done.output.count("two runs are equal bit for bit") == len(device_trial.METHODS)
    assert " MiB free" in done.output or " GiB free" in done.output
    assert re.search(
        r"at most [\d.]+ (Ki|Mi)?B in use by tensors, hpcfl plan says [\d.]+ (Ki|Mi)?B", done.output
    )
    assert "send these lines to the maintainers" in done.output
