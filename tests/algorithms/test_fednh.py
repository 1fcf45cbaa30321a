"""FedNH: prototypes move by hand-computed means, get no gradient, and start apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hpcfl.algorithms.fednh import moved_prototypes
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.prototypes import Prototypes
from hpcfl.training.local_client import LocalClient
from tests.helpers.cases import FEW, ONE_NETWORK
from tests.helpers.runs import options, train_log

SETTINGS = [*FEW, *ONE_NETWORK, "method.name=fednh"]


def test_prototypes_move_by_the_weighted_mean():
    """Class 0: 3 samples east, 1 north, ρ = 1/2; class 1 is absent; class 2 has only zeros."""
    last_KD = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    present_K = torch.tensor([True, False, True])
    uploads = [
        Upload(Prototypes(torch.tensor([row, [0.0, 0.0], [0.0, 0.0]]), present_K), torch.tensor(count), i)
        for i, (row, count) in enumerate([([1.0, 0.0], [3, 0, 1]), ([0.0, 1.0], [1, 0, 2])])
    ]
    moved_KD = moved_prototypes(last_KD, uploads, rho=0.5)
    mean = np.array([3.0, 1.0]) / math.sqrt(10)
    expected = np.array([1.0, 0.0]) + mean
    np.testing.assert_allclose(moved_KD[0], expected / np.linalg.norm(expected), rtol=1e-6)
    assert torch.equal(moved_KD[1:], last_KD[1:])


@pytest.mark.parametrize("features", [2, 3, 8])
def test_prototypes_get_no_gradient_and_start_apart(hpcfl, sent, monkeypatch, features):
    train, seen = LocalClient.train, []

    def recording(self, *arguments):
        before = self.network.head.weight.clone()
        assert self.network.head.weight.grad_fn is None
        assert not self.network.head.weight.requires_grad
        losses = train(self, *arguments)
        seen.append(torch.equal(before, self.network.head.weight))
        return losses

    monkeypatch.setattr(LocalClient, "train", recording)
    log = train_log(hpcfl, *SETTINGS, f"models.features={features}")
    assert seen == [True] * 6
    assert (log["/client/head_norms"][-1][log["/round/participants"].any(0)] == 1).all()
    start_KD = sent[0]["head.weight"].double()
    for download in sent:
        torch.testing.assert_close(download["head.weight"].norm(dim=1), torch.ones(6))
    cosine_KK = start_KD @ start_KD.T
    if features == 8:
        torch.testing.assert_close(cosine_KK, torch.eye(6).double(), atol=1e-6, rtol=0)
    if features == 2:  # 0°, 60°, …
        torch.testing.assert_close(cosine_KK.diagonal(1), torch.full((5,), 0.5).double(), atol=1e-6, rtol=0)
    assert not torch.equal(sent[0]["head.weight"], sent[1]["head.weight"])
    assert sent[0]["head.scale"] == 1 != sent[1]["head.scale"]


def test_the_method_chooses_the_head(hpcfl):
    assert {*train_log(hpcfl, *SETTINGS)["/clients/architecture"]} == {"mlp_256/prototypes"}
    done = hpcfl("train", *options(*SETTINGS, "models.head=mlp128"))
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: models.head = 'mlp128': the method gives all clients the head 'prototypes'\n",
    )
