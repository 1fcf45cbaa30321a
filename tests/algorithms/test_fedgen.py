"""FedGen: bytes, which generator travels, class counts that are sent once, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hpcfl.algorithms.fedgen import generator, inputs
from hpcfl.engine.worker import Worker
from tests.helpers.cases import FEW
from tests.helpers.runs import train_log

CLASSES, WIDTH, NOISE = 6, 8, 32
GENERATOR = (NOISE + CLASSES) * WIDTH + WIDTH + 2 * WIDTH + WIDTH * WIDTH + WIDTH
HEAD = CLASSES * WIDTH + CLASSES


@pytest.fixture
def run(hpcfl):
    return lambda *settings: train_log(hpcfl, *FEW, "method.name=fedgen", *settings)


def test_a_generator_for_cifar100_has_the_papers_size():
    assert sum(p.numel() for p in generator(100, 512, 32).parameters()) == 331_776
    assert not list(generator(100, 512, 32).buffers())  # no running statistics: none travel


def test_inputs_are_noise_and_label():
    noise = torch.tensor([[0.25, 0.5], [0.75, 0.0]])
    assert inputs(noise, torch.tensor([2, 0]), 3).tolist() == [[0.25, 0.5, 0, 0, 1], [0.75, 0, 1, 0, 0]]


def test_bytes(run):
    log = run()
    up, down = log["/round/bytes_up"], log["/round/bytes_down"]
    assert up.tolist() == [4 * 2 * HEAD] * 3
    assert down.tolist() == [4 * 20 * HEAD, *[4 * 20 * (HEAD + GENERATOR)] * 2]
    first = np.cumsum(log["/round/participants"], 0)
    once = [(first[t][who] == 1).sum() for t, who in enumerate(log["/round/participants"])]
    labels = [0, *[20 * 8 * CLASSES] * 2]
    assert log["/round/bytes_side"].tolist() == [
        8 * CLASSES * new + label for new, label in zip(once, labels, strict=True)
    ]
    assert log["/refine/iterations"].tolist() == [100] * 3


def test_losses_of_the_generated_features_fall(run):
    log = run("federation.rounds=6", "federation.participation=1.0")
    assert np.isnan(log["/round/loss_generated"][0])
    assert log["/refine/loss"][-1] < log["/refine/loss"][0]
    assert np.isfinite(log["/round/loss_generated"][1:]).all()


def test_without_a_generator_it_is_lg_fedavg(run, hpcfl):
    alone = run("method.generator=none")
    other = train_log(hpcfl, *FEW, "method.name=lg-fedavg")
    for path in ("/round/loss", "/client/accuracy_head", "/round/bytes_down"):
        np.testing.assert_array_equal(alone[path], other[path])


def test_the_initial_generator_is_never_trained(run, monkeypatch):
    sent = []
    receive = Worker.receive

    def keep(self, download):
        sent.append({name: value.clone() for name, value in download.items() if "generator" in name})
        receive(self, download)

    monkeypatch.setattr(Worker, "receive", keep)
    log = run("method.generator=initial")
    assert not sent[0]
    assert all(torch.equal(sent[1][name], sent[3][name]) for name in sent[1])
    assert log["/refine/iterations"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("train.batch_size=1", "train.batch_size = 1: fedgen's generator has batch-norm"),
        ("models.head=htc4", "has one head for all clients"),
        ("method.generator=both", "method.generator = 'both': allowed is"),
    ],
)
def test_refusals(hpcfl, setting, sentence):
    done = hpcfl("train", "--set=method.name=fedgen", f"--set={setting}")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert sentence in done.output
