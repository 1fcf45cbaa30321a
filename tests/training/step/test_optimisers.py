"""Clipping, optimisers and learning rates against torch's own."""

from __future__ import annotations

import copy

import pytest
import torch

from hpcfl.config.loading import load_config
from hpcfl.config.schema import RuntimeConfig
from hpcfl.config.train import TrainConfig
from hpcfl.errors import BadInput
from hpcfl.models.network import build_network
from hpcfl.training.learning_rate import learning_rate
from hpcfl.training.step.options import StepOptions, step_options
from hpcfl.training.step.step import make_step
from tests.helpers.runs import SMALL, train_log

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


OPTIMISERS = {
    "sgd": lambda p, decay, momentum: torch.optim.SGD(p, 0.01, momentum, weight_decay=decay),
    "adam": lambda p, decay, momentum: torch.optim.Adam(p, 0.01, weight_decay=decay),
    "adamw": lambda p, decay, momentum: torch.optim.AdamW(p, 0.01, weight_decay=decay),
}
CHOICES = [("sgd", 0.0), ("sgd", 0.5), ("adam", 0.0), ("adamw", 0.0)]


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize(("name", "momentum"), CHOICES)
@pytest.mark.parametrize("way", [PLAIN, StepOptions()], ids=str)
def test_optimisers_are_torchs(way, name, momentum, decay):
    """To the bit with the plain step; the direct one sums in another order.

    At 16 × 16 the last convolutions of a ResNet-8 have 3 × 3 kernels of which only one entry meets a pixel:
    the others have no gradient, and decay.
    """
    torch.manual_seed(0)
    plain = build_network("resnet8", (3, 16, 16), 5, 64)
    network = copy.deepcopy(plain)
    exact = way == PLAIN
    if not exact:
        plain.double()
        network.double().to(memory_format=way.memory_format)  # type: ignore[call-overload]
    settings = TrainConfig(lr=0.01, momentum=momentum, optimizer=name, weight_decay=decay)
    step = make_step(network, settings, way)
    for start in (0, 2):  # the state is new in every round
        step.begin(None)
        optimiser = OPTIMISERS[name](plain.train().parameters(), decay, momentum)
        for x, y in batches()[start : start + 2]:
            x = x if exact else x.double()
            step(x.contiguous(memory_format=way.memory_format), y)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(plain(x), y).backward()
            optimiser.step()
        step.end()
    for got, want in zip(network.parameters(), plain.parameters(), strict=True):
        if exact:
            assert torch.equal(got, want)
        else:
            torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-7 if name == "sgd" else 1e-6)


def test_learning_rates_are_those_of_torchs_schedulers():
    def rates(make, rounds=12):
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.2)
        scheduler, found = make(optimiser), []
        for _ in range(rounds):
            found.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            scheduler.step()
        return found

    steps = TrainConfig(lr=0.2, lr_schedule="step", lr_rounds=3, lr_factor=0.5)
    want = rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5))
    assert [learning_rate(steps, t) for t in range(12)] == pytest.approx(want, rel=1e-12)
    cosine = TrainConfig(lr=0.2, lr_schedule="cosine", lr_rounds=11, lr_min=0.01)
    want = rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 11, 0.01))
    assert [learning_rate(cosine, t) for t in range(12)] == pytest.approx(want, rel=1e-12)
    assert learning_rate(cosine, 11) == learning_rate(cosine, 500) == 0.01
    assert {learning_rate(TrainConfig(lr=0.2), t) for t in range(99)} == {0.2}


def test_rounds_are_trained_with_their_learning_rate(hpcfl):
    """A learning rate of almost 0 changes nothing; each run begins as the one with a constant rate."""
    constant = train_log(hpcfl, *SMALL, "federation.rounds=3")
    steps = ("train.lr_schedule=step", "train.lr_rounds=2", "train.lr_factor=1e-30")
    log = train_log(hpcfl, *SMALL, "federation.rounds=3", *steps)
    assert (log["/round/loss"][:2] == constant["/round/loss"][:2]).all()
    assert (log["/client/accuracy_head"][:2] == constant["/client/accuracy_head"][:2]).all()
    assert (log["/client/accuracy_head"][2] == log["/client/accuracy_head"][1]).all()
    assert (log["/client/accuracy_head"][2] != constant["/client/accuracy_head"][2]).any()


BAD = {
    ("train.optimizer=foo",): "train.optimizer = 'foo': allowed is 'sgd', 'adam' or 'adamw'",
    ("train.optimizer=adam", "train.momentum=0.5"): "train.momentum = 0.5: adam has its own, set 0.0",
    ("train.weight_decay=-1",): "train.weight_decay = -1",
    ("train.lr_schedule=step",): "train.lr_schedule = 'step': needs train.lr_rounds",
    ("train.lr_schedule=cosine", "train.lr_rounds=5", "train.lr_min=0.5"): "train.lr_min = 0.5: must not be",
    ("train.lr_factor=0",): "train.lr_factor = 0: must be greater than 0",
    ("train.lr_rounds=0",): "train.lr_rounds = 0: must be greater than or equal to 1",
    ("train.optimizer=adamw", "runtime.graphs=true"): "runtime.graphs = true: only with train.optimizer",
}


@pytest.mark.parametrize("settings", BAD)
def test_impossible_settings_are_one_sentence(settings):
    with pytest.raises(BadInput) as error:
        load_config(None, list(settings))
    assert BAD[settings] in str(error.value)
