"""Low-rank factors keep the energy that is asked for, with as few singular values as possible."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.methods.low_rank import factorise, is_smaller, kept_rank


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(7, 4), (4, 7), (5, 5), (1, 6), (3, 2, 5, 5), (4, 3, 3, 5), (2, 2, 1, 1)]),
    st.floats(0.05, 0.999),
    st.integers(0, 99),
)
def test_factors_reach_their_energy_and_one_value_less_does_not(shape, share, seed):
    torch.manual_seed(seed)
    weight = torch.randn(shape)
    left, sigma, right = factorise(weight, share)
    rank = sigma.shape[-1]
    kept = (left * sigma[..., None, :]) @ right
    assert kept.shape == weight.shape
    total, lost = weight.double().square().sum(), (weight - kept).square().sum()
    assert lost <= (1 - share) * total + 1e-9
    torch.testing.assert_close(left.mT @ left, torch.eye(rank).double().expand(*shape[:-2], rank, rank))
    fewer = (left[..., : rank - 1] * sigma[..., None, : rank - 1]) @ right[..., : rank - 1, :]
    assert (weight - fewer).square().sum() > (1 - share) * total


@pytest.mark.parametrize(
    ("energy", "share", "ours", "published"),
    [
        ([6.0, 3.0, 1.0], 0.5, 1, 1),
        ([6.0, 3.0, 1.0], 0.6, 1, 2),  # published: more than the share
        ([6.0, 3.0, 1.0], 0.89, 2, 2),
        ([6.0, 3.0, 1.0], 0.95, 3, 0),  # published: the last value would be needed, so nothing is kept
        ([6.0, 3.0, 1.0], 1.0, 3, 0),
        ([5.0], 0.1, 1, 0),  # every 1 × 1 convolution
        ([0.0, 0.0], 0.9, 0, 0),
    ],
)
def test_how_many_singular_values_are_kept(energy, share, ours, published):
    value = torch.tensor(energy, dtype=torch.float64)
    assert (kept_rank(value, share), kept_rank(value, share, published=True)) == (ours, published)


def test_factors_of_a_known_matrix():
    """diag(3, 2, 1) has energies 9, 4 and 1 of 14: 13/14 need two of them."""
    left, sigma, right = factorise(torch.diag(torch.tensor([2.0, 3.0, 1.0])), 13 / 14 - 1e-9)
    torch.testing.assert_close(sigma, torch.tensor([3.0, 2.0]).double())
    kept = left @ torch.diag(sigma) @ right
    torch.testing.assert_close(kept, torch.diag(torch.tensor([2.0, 3.0, 0.0])).double())


def test_a_zero_weight_has_no_factors():
    left, sigma, right = factorise(torch.zeros(4, 3), 0.9)
    assert (left.shape, sigma.shape, right.shape) == ((4, 0), (0,), (0, 3))
    assert torch.equal(left @ right, torch.zeros(4, 3).double())


def test_when_factors_are_smaller():
    assert is_smaller(torch.empty(512, 1600), 387)  # 387 · 2112 = 817,344 of 819,200
    assert not is_smaller(torch.empty(512, 1600), 388)
    assert is_smaller(torch.empty(9, 9, 5, 5), 2)
    assert not is_smaller(torch.empty(9, 9, 3, 3), 2)
    assert not is_smaller(torch.empty(9, 9, 1, 1), 1)


@pytest.mark.parametrize("published", [False, True])
def test_kernels_of_exact_low_rank_are_restored(published):
    """Eigenvalues of the Gram matrix that round below 0 must not make V infinite."""
    rng = torch.Generator().manual_seed(3)
    left, right = torch.randn(2, 40, 30, 5, 2, generator=rng)
    kernels = left @ right.mT  # of rank 2
    kernels[:20] = left[:20, ..., :1] @ right[:20, ..., :1].mT  # of rank 1
    kernels[0, 0] = 0
    kernels[1, 1] = torch.randn(5, 4, generator=rng) @ torch.randn(4, 5, generator=rng)  # the common rank
    parts = [part.float() for part in factorise(kernels, 1 - 1e-9, published)]
    assert all(part.isfinite().all() for part in parts)
    u, sigma, v = parts
    assert sigma.shape[-1] == 4
    torch.testing.assert_close((u * sigma[..., None, :]) @ v, kernels, rtol=1e-4, atol=1e-3)
