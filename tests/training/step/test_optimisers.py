"""Clipping, optimisers and learning rates against torch's own."""

from __future__ import annotations

import copy

import pytest
import torch

from hpcfl.config.loading import load_config
from hpcfl.config.schema import RuntimeConfig, TrainConfig
from hpcfl.errors import BadInput
from hpcfl.models.network import build_network
from hpcfl.training.step.options import StepOptions, step_options
from hpcfl.training.step.step import make_step

PLAIN = StepOptions(direct=False, products=False, channels_last=False)


def batches(steps: int = 4):
    torch.manual_seed(1)
    return [(torch.randn(8, 3, 16, 16), torch.randint(0, 5, (8,))) for _ in range(steps)]


@pytest.mark.parametrize("norm", [0.05, 1e6])
def test_clipping_is_torchs(norm):
    torch.manual_seed(0)
    network = build_network("resnet4", (3, 16, 16), 5, 64)
    other = copy.deepcopy(network).train()
    step = make_step(network, TrainConfig(lr=0.1, momentum=0.5, clip_norm=norm), PLAIN)
    optimiser = torch.optim.SGD(other.parameters(), 0.1, momentum=0.5)
    step.begin(None)
    for x, y in batches():
        step(x, y)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(other(x), y).backward()
        found = torch.nn.utils.clip_grad_norm_(other.parameters(), norm)
        assert (found > norm) == (norm < 1)
        optimiser.step()
    for got, want in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(got, want)


def test_clipping_needs_the_plain_step(hpcfl):
    assert step_options(RuntimeConfig(), "cpu", "cnn", clip_norm=1.0) == PLAIN
    done = hpcfl("train", "--set=train.clip_norm=1", "--set=runtime.step=direct")
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: runtime.step = 'direct': updates weights before the norm of all gradients is known; do not "
        "clip (train.clip_norm = 0.0)\n",
    )
    with pytest.raises(BadInput, match=r"train.clip_norm = -1"):
        load_config(None, ["train.clip_norm=-1"])
