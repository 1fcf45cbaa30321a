"""FedUV: both terms by hand, their gradients, batches without spread."""

from __future__ import annotations

import math

import pytest
import torch

from hpcfl.algorithms.feduv import uniformity_term, variance_term


def test_variance_of_outputs():
    """Outputs of two classes (0.9, 0.1) and (0.5, 0.5): each class has the unbiased std 0.4/√2."""
    logit_BK = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
    term = variance_term(logit_BK)
    assert term.item() == pytest.approx(1 / math.sqrt(2) - 0.4 / math.sqrt(2))
    one_hot = 100 * torch.eye(4)
    assert variance_term(one_hot).item() == pytest.approx(0, abs=1e-6)


def test_uniformity_of_features():
    """Points 0, 1, 3, 3 on a line: squared distances 1, 9, 9, 4, 4, 0; without the 0 the median is 4."""
    z_BD = torch.tensor([[0.0], [1.0], [3.0], [3.0]], requires_grad=True)
    expected = sum(math.exp(-d / 4) for d in (1, 9, 9, 4, 4, 0)) / 6
    term = uniformity_term(z_BD)
    assert term.item() == pytest.approx(expected)
    even = torch.tensor([[0.0], [1.0], [3.0]])  # 1, 4, 9
    assert uniformity_term(even).item() == pytest.approx(sum(math.exp(-d / 4) for d in (1, 4, 9)) / 3)
    lower = torch.tensor([[0.0], [1.0], [3.0], [7.0]])  # 1, 4, 9, 16, 36, 49: the lower of 9 and 16
    assert uniformity_term(lower).item() == pytest.approx(
        sum(math.exp(-d / 9) for d in (1, 4, 9, 16, 36, 49)) / 6
    )


def test_gradients_flow_through_the_median():
    """The term does not depend on the scale of the features, so its gradient is orthogonal to them."""
    z_BD = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    uniformity_term(z_BD).backward()
    assert z_BD.grad is not None
    assert z_BD.grad.norm() > 1e-3
    assert (z_BD.grad * z_BD.detach()).sum().item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rows", [1, 3])
def test_one_sample_or_equal_features_give_no_uniformity_and_no_nan(rows):
    z_BD = torch.ones(rows, 4, requires_grad=True)
    loss = uniformity_term(z_BD) + variance_term(z_BD) + z_BD.sum()
    loss.backward()
    assert uniformity_term(z_BD).item() == 0
    assert z_BD.grad is not None
    assert z_BD.grad.isfinite().all()
    assert variance_term(z_BD).item() == (0 if rows == 1 else 0.5)
