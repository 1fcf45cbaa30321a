"""Low-rank factors of a weight: FedKD's compression."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

ROUNDING = 1e-7
"""Singular values below this share of the largest are rounding errors: roots of errors near 1e-16."""


def kept_rank(energy_R: Tensor, share: float, published: bool = False) -> int:
    """Returns how many singular values are kept, given their squares in falling order.

    It is the smallest number that has the share of the sum. Published code looks for one that exceeds it, but
    never keeps the last value: where that would be needed, nothing is kept.
    """
    sum_R, limit = energy_R.cumsum(0), share * energy_R.sum()
    if published:
        return next((rank for rank in range(1, len(sum_R)) if sum_R[rank - 1] > limit), 0)
    return min(len(sum_R), int((sum_R < limit).sum()) + 1) if sum_R[-1] > 0 else 0


def factorise(weight: Tensor, share: float, published: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Returns U, σ and V in float64 with weight ≈ U·diag(σ)·V: its largest singular values.

    The weight is a matrix; of a convolution every kernel [kh, kw] is one, and all have a common rank.
    """
    w = weight.detach().cpu().double()
    wide = w if w.shape[-2] <= w.shape[-1] else w.mT
    square, vectors = torch.linalg.eigh(wide @ wide.mT)  # the smaller Gram matrix; eigenvalues σ², rising
    square, vectors = square.flip(-1).clamp_min(0), vectors.flip(-1)
    rank = kept_rank(square.flatten(0, -2).sum(0) if square.dim() > 1 else square, share, published)
    u, sigma = vectors[..., :rank], square[..., :rank].sqrt()
    lost = sigma <= ROUNDING * square[..., :1].sqrt()  # a singular value of 0, but for rounding: V is 0 there
    v = ((u.mT @ wide) / sigma.masked_fill(lost, 1.0)[..., None]).masked_fill(lost[..., None], 0.0)
    return (u, sigma, v) if w.shape[-2] <= w.shape[-1] else (v.mT, sigma, u.mT)


def factorise_flops(shape: Sequence[int]) -> int:
    """Returns the FLOPs of `factorise`, if all singular values are kept, for a weight of this shape.

    They are two products of n × n and n × m, with n ≤ m, and the eigenvectors of an n × n matrix, about 9n³
    (Golub and Van Loan, Matrix Computations, 8.3).
    """
    n, m = sorted(shape[-2:])
    return math.prod(shape[:-2]) * (4 * n * n * m + 9 * n**3)


def multiply_flops(shape: Sequence[int], published: bool = False) -> int:
    """Returns the FLOPs of multiplying factors of the largest rank that a weight of this shape can have."""
    n, m = sorted(shape[-2:])
    rank = n - 1 if published else (n * m - 1) // (n + m)
    return math.prod(shape[:-2]) * 2 * n * m * rank


def is_smaller(weight: Tensor, rank: int) -> bool:
    """Returns whether two factors of this rank have fewer numbers than the weight."""
    rows, columns = weight.shape[-2:]
    return rank * (rows + columns) < rows * columns
