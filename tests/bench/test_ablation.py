"""`hpcfl bench step --ablate`: parts are taken out and put back, and results stay the same."""

from __future__ import annotations

import re
from collections import OrderedDict

import pytest
import torch
from torch import nn

from hpcfl.bench.step_ablation import relu_first, run_without, step_parts
from hpcfl.training.step import layers

PARTS = list(step_parts([]))


def test_a_line_for_each_part(bench_command):
    networks = ("--set", "models.list=['mlp_64', 'mlp_256']")
    done = bench_command("step", "--ablate", "--repeats", 2, "--samples", 8, *networks)
    assert done.exit_code == 0, done.output
    lines = [
        re.fullmatch(r"(.*): with ÷ without [\d.]+ \(quartiles [\d.]+ and [\d.]+\)", line)
        for line in done.output.splitlines()
    ]
    assert [line and line[1] for line in lines] == PARTS


def test_one_part_alone(bench_command):
    done = bench_command("step", "--ablate", "--repeats", 2, "--samples", 8, "--part", PARTS[1])
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 1
    assert done.output.startswith(PARTS[1])


def test_what_was_taken_out_is_put_back():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU())
    before = list(network)
    axes, onednn = layers._axes, layers.ONEDNN
    parts = step_parts([network])

    def work() -> None:
        assert list(network) == [before[0], before[2], before[1]]
        assert (layers.ONEDNN, layers._axes is axes) == (False, False)
        raise ZeroDivisionError

    replacements = [*parts[PARTS[1]], *parts["pointwise"], *parts[PARTS[-1]]]
    with pytest.raises(ZeroDivisionError):
        run_without(replacements, work)
    assert list(network) == before
    assert (layers.ONEDNN, layers._axes) == (onednn, axes)


def test_a_relu_may_change_places_with_a_max_pool():
    network = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
    other = nn.Sequential(OrderedDict((k, part) for k, part in relu_first(network).items() if part))
    assert [type(layer) for layer in other] == [nn.ReLU, nn.ReLU, nn.MaxPool2d, nn.Flatten]
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(network(x), other(x))
