"""FedGen: step of the generator and term of the clients by hand, bytes, class counts sent once, refusals."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcfl.algorithms.fedgen import FedGen, generator, inputs
from hpcfl.config.loading import load_config
from hpcfl.exchange.codec import ClientUpload
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.step.step import BatchOutputs
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


@pytest.fixture
def algorithm() -> FedGen:
    """FedGen whose generators make zeros: the last layer has neither weights nor bias."""
    settings = [*FEW, "method.name=fedgen", "method.server_steps=1", "method.server_lr=0.01"]
    found = FedGen(plan_run(load_config(None, settings)), torch.device("cpu"))
    with torch.no_grad():
        for network in (found.generator, found.received):
            for parameter in network[3].parameters():
                parameter.zero_()
    return found


def upload_of(client: int, samples: int, weight: float) -> ClientUpload:
    """An upload whose head has one weight for class 0, zero elsewhere; all samples are of class 0."""
    head_KD, count_K = torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES, dtype=torch.int64)
    head_KD[0], count_K[0] = weight, samples
    return ClientUpload(client, False, {"head.0": head_KD, "head.1": torch.zeros(CLASSES), "counts": count_K})


def test_a_step_of_the_server_by_hand(algorithm):
    """Heads −1 and 1 of 10 and 30 samples: their mean is 1/2. Features of 0 give all classes the share 1/6.

    So the loss is ln 6, its gradient by G's last bias (1/6 − 1)/2, and Adam's first step has the length η.
    """
    sent = algorithm.aggregate(0, {}, [upload_of(1, 10, -1.0), upload_of(4, 30, 1.0)])
    assert (sent["head.0"][0] == 0.5).all()
    assert sent["labels"].tolist() == [40, 0, 0, 0, 0, 0]
    assert algorithm.loss == pytest.approx(math.log(6))
    torch.testing.assert_close(sent["generator.3.bias"], torch.full((WIDTH,), 0.01))


def test_the_term_of_a_client_by_hand(algorithm):
    """Of features of 0 the logits are the head's bias b: ln Σ exp(b) − b_2 where all labels are 2."""
    head = torch.nn.Linear(WIDTH, CLASSES)
    bias_K = torch.tensor([0.0, 1.0, 2.0, 0.0, 0.0, 0.0])
    head.bias.data.copy_(bias_K)
    client = SimpleNamespace(step=SimpleNamespace(logits=head))
    labels_K = torch.tensor([0, 0, 7, 0, 0, 0])
    loss = algorithm.local_loss(client, {"labels": labels_K})
    outputs = BatchOutputs(torch.ones(1, WIDTH), torch.ones(1, CLASSES), torch.tensor([1]))
    weight, term = loss(outputs)["generated"]
    assert weight == 1
    assert term.item() == pytest.approx(math.log(4 + math.e + math.e**2) - 2, rel=1e-6)
    term.backward()
    torch.testing.assert_close(head.bias.grad, bias_K.softmax(0) - torch.eye(CLASSES)[2])
    assert all(parameter.grad is None for parameter in algorithm.received.parameters())
    assert algorithm.local_loss(client, {}) is None, "no generator in the first round"


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


def test_the_initial_generator_is_never_trained(run, sent):
    log = run("method.generator=initial")
    names = [name for name in sent[1] if "generator" in name]
    assert names
    assert not [name for name in sent[0] if "generator" in name]
    assert all(torch.equal(sent[1][name], sent[3][name]) for name in names)
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
