"""The exact minimum of ProtoNorm's energy where it is known, and a better optimiser where it is not."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.refine.base import Notes, OnSphere
from hpcfl.methods.refine.thomson import span, thomson
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


def relax(unit_PD: Tensor, notes: Notes | None = None) -> Tensor:
    """Returns directions of at most the same energy, by L-BFGS over x with c = x/‖x‖.

    Its gradient is the tangential part of the force; the length of x is free and changes nothing.
    """
    from scipy.optimize import minimize

    c_PR, basis_RD = span(unit_PD)
    shape = c_PR.shape

    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        free_PR = torch.from_numpy(x).reshape(shape)
        unit_PR = normalise(free_PR)
        slope_PR = -tangent(force(unit_PR), unit_PR) / free_PR.norm(dim=1, keepdim=True)
        return float(energy(unit_PR)), slope_PR.reshape(-1).numpy()

    found = minimize(
        value_and_slope,
        c_PR.cpu().numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20},
    )
    if notes:
        notes.iterations += found.nit
    placed_PD = normalise(torch.from_numpy(found.x).reshape(shape).to(unit_PD.device)) @ basis_RD
    return placed_PD if energy(placed_PD) <= energy(unit_PD) else unit_PD


class Simplex(OnSphere):
    """The regular simplex nearest to the round's means; for P > D + 1 Thomson, then L-BFGS from there."""

    def place(self, unit_PD: Tensor) -> Tensor:
        if len(unit_PD) <= unit_PD.shape[1] + 1:
            return nearest_simplex(unit_PD)
        start_PD = thomson(unit_PD, self.setting.options["iterations"], self.notes, self.setting.trace)
        return relax(start_PD, self.notes)
