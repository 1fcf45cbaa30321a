"""FedMPS: its terms by hand-derived numbers, the lower level of every network, bytes, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hpcfl.algorithms.fedmps import contrastive, soft_label_loss
from hpcfl.models.low_level import low_level_layer, low_level_outputs, low_level_width
from hpcfl.models.network import build_network
from hpcfl.models.registry import ARCHITECTURES
from tests.helpers.cases import FEW, prepare_images
from tests.helpers.mpi import ROOT
from tests.helpers.runs import options, train_log


def test_contrast_of_two_classes():
    """Features and prototypes e1, e2 of labels 0, 1: an anchor's other anchors have a·b = 1, 0, 0.

    So each has the loss −(1/τ − log(e^{1/τ} + 2)), times τ/0.07.
    """
    z, y, temperature = torch.eye(2), torch.tensor([0, 1]), 0.5
    expected = temperature / 0.07 * (math.log(math.exp(1 / temperature) + 2) - 1 / temperature)
    assert contrastive(z, z, y, temperature).item() == pytest.approx(expected, rel=1e-6)


def test_a_single_sample_and_its_prototype_have_no_contrast():
    z, anchor = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.3]])
    assert contrastive(z, anchor, torch.tensor([3]), 0.5).item() == 0


def test_soft_labels_are_a_batch_mean_and_unknown_ones_add_zero():
    """Logits 5 ln p at T = 5 give the shares p: KL((1/2, 1/2) ‖ (3/4, 1/4)) = ln(2/√3)."""
    logits = 5 * torch.tensor([[0.75, 0.25], [0.1, 0.9]]).log()
    target = torch.zeros(2, 2)
    found = soft_label_loss(logits, target, torch.tensor([True, False]), 5.0)
    assert found.item() == pytest.approx(math.log(2 / math.sqrt(3)) / 2, rel=1e-6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_network_has_a_lower_level(name):
    shape = (3, 32, 32)
    torch.manual_seed(0)
    network = build_network(name, shape, 4, 16).train()
    layer = low_level_layer(network, name)
    with low_level_outputs(layer) as output:
        z = network.extractor(torch.rand(2, *shape))
        low = output()
        assert low.shape == (2, low_level_width(name, shape, 4, 16))
        assert low.shape[1] > 0
        assert not torch.equal(low, z)
        low.square().sum().backward()
    before = next(network.extractor.parameters())
    assert before.grad is not None
    assert before.grad.abs().sum() > 0
    assert not layer._forward_hooks


FAMILIES = {
    "mlp": "perceptrons",
    "resnet": "ResNets",
    "googlenet": "GoogLeNet",
    "mobilenet": "MobileNetV2",
    "shufflenet": "ShuffleNetV2",
    "densenet": "DenseNet-121",
    "efficientnet": "EfficientNet-B0",
}
"""What the page calls networks that it does not name one by one."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_page_has_the_lower_level_of_every_network(name):
    page = (ROOT / "docs" / "models.md").read_text().partition("\n## Two levels of features\n")[2]
    rows = [line.split(" | ") for line in page.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    family = FAMILIES.get(name.partition("_")[0].rstrip("0123456789"))
    [row] = [row for row in rows if (family or f"`{name.removesuffix('_published')}`") in row[0]]
    width = low_level_width(name, (3, 32, 32), 4, 16)
    number = "its width" if family == "perceptrons" else f"{width:,}" if width >= 10_000 else f"{width}"
    assert number in row[2]


@pytest.fixture
def run(hpcfl):
    return lambda *settings: train_log(hpcfl, *FEW, "method.name=fedmps", *settings)


def test_bytes_and_inference(run):
    log = run("method.infer=global")
    owned = log["/clients/class_counts"] > 0
    width = 8 + 16  # features and mlp_taper's first hidden layer
    up = [4 * width * owned[who].sum() for who in log["/round/participants"]]
    assert log["/round/bytes_up"].tolist() == up
    known = np.cumsum([owned[who].any(0) for who in log["/round/participants"]], 0) > 0
    down = [0, *(4 * 2 * (width + 6) * known[t].sum() for t in range(2))]
    assert log["/round/bytes_down"].tolist() == down
    np.testing.assert_array_equal(log["/client/accuracy"][-1], log["/client/accuracy_global"][-1])
    assert np.isnan(log["/round/loss_high"][0])
    assert np.isfinite(log["/round/loss_soft"][1:]).all()


def test_the_width_of_the_lower_level_is_an_option(run):
    log = run("method.low_features=3")
    owned = log["/clients/class_counts"] > 0
    assert log["/round/bytes_up"][0] == 4 * 11 * owned[log["/round/participants"][0]].sum()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("runtime.graphs=true", "runtime.graphs = true: fedmps reads an inner layer"),
        ("method.low_features=257", "method.low_features = 257: the widest lower level of the clients' "),
    ],
)
def test_refusals(hpcfl, setting, sentence):
    done = hpcfl("train", *options(*FEW, "method.name=fedmps", setting))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert sentence in done.output


def test_weights_of_zero_leave_the_cross_entropy(run, hpcfl):
    weights = [f"method.{name}=0.0" for name in ("high", "low", "soft")]
    alone = train_log(hpcfl, *FEW, "method.name=local")
    np.testing.assert_allclose(run(*weights)["/round/loss"], alone["/round/loss"], rtol=1e-6)


def test_a_network_without_a_lower_level_is_refused(hpcfl, tmp_path, monkeypatch):
    prepare_images(tmp_path)
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n\ndef tiny(shape, features):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(768, 9), nn.ReLU(), nn.Linear(9, features))\n\n\n"
        "def named(shape, features):\n    return tiny(shape, features)\n\n\nnamed.low_level = '2'\n"
    )
    settings = [
        "data.name=tiny",
        "data.root=.",
        "method.name=fedmps",
        "federation.rounds=1",
        "partition.alpha=1.0",
    ]
    settings = [f"--set={each}" for each in (*settings, "federation.clients=3")]
    done = hpcfl("train", *settings, "--set=models.list=['nets:tiny']")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "nets:tiny has no lower level of features" in done.output
    assert hpcfl("train", *settings, "--set=models.list=['nets:named']").exit_code == 0
