"""The exact minimum of ProtoNorm's energy where it is known, and a better optimiser where it is not."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.refine.base import RefineStats
from hpcfl.methods.refine.thomson import Thomson
from hpcfl.methods.sphere import energy, force, normalise, tangent


def helmert(classes: int) -> Tensor:
    """Returns an orthonormal basis of the vectors whose P entries add up to zero: P × (P − 1)."""
    basis = torch.zeros(classes, classes - 1, dtype=torch.float64)
    for n in range(1, classes):
        basis[:n, n - 1] = 1 / math.sqrt(n * (n + 1))
        basis[n, n - 1] = -n / math.sqrt(n * (n + 1))
    return basis


def nearest_simplex(unit_PD: Tensor) -> Tensor:
    """Returns the regular simplex (all cosines −1/(P − 1)) whose vertices are nearest to the rows; P ≤ D + 1.

    With B a basis of the vectors that add up to zero, every such simplex is √(P/(P − 1)) B R with orthonormal
    rows in R. Σ_j c_j·s_j is largest where R is the orthogonal factor of Bᵀc: Procrustes, one SVD.
    """
    classes = len(unit_PD)
    if classes == 1:
        return unit_PD
    basis = helmert(classes).to(unit_PD.device)
    left, _, right = torch.linalg.svd(basis.T @ unit_PD, full_matrices=False)
    return normalise(basis @ (left @ right))


def relax(unit_PD: Tensor, iterations: int = 500, stats: RefineStats | None = None) -> Tensor:
    """Returns directions of at most the same energy, by L-BFGS over x with c = x/‖x‖, on the CPU.

    Its gradient is the tangential part of the force; the length of x is free and changes nothing.
    """
    from scipy.optimize import minimize

    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        free_PD = torch.from_numpy(x).reshape(unit_PD.shape)
        c_PD = normalise(free_PD)
        slope_PD = -tangent(force(c_PD), c_PD) / free_PD.norm(dim=1, keepdim=True)
        return float(energy(c_PD)), slope_PD.reshape(-1).numpy()

    found = minimize(
        value_and_slope,
        unit_PD.cpu().numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "maxfun": 4 * iterations, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20},
    )
    if stats:
        stats.iterations += found.nit
    placed_PD = normalise(torch.from_numpy(found.x).reshape(unit_PD.shape)).to(unit_PD.device)
    return placed_PD if energy(placed_PD) <= energy(unit_PD) else unit_PD


class Simplex(Thomson):
    """The regular simplex nearest to the round's means; for P > D + 1 Thomson, then L-BFGS from there."""

    def place(self, unit_PD: Tensor, mask_PD: Tensor | None = None) -> Tensor:
        if len(unit_PD) <= unit_PD.shape[1] + 1:
            return nearest_simplex(unit_PD)
        return relax(super().place(unit_PD), self.context.options["iterations"], self.stats)
