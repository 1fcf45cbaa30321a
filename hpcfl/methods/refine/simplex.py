"""The exact minimum of ProtoNorm's energy for P ≤ D + 1, and L-BFGS after Thomson otherwise."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.refine.base import RefineStats
from hpcfl.methods.refine.thomson import Thomson
from hpcfl.methods.sphere import energy, force, normalise, tangent


def helmert(classes: int) -> Tensor:
    """Returns an orthonormal basis of the vectors whose P entries sum to zero: P × (P − 1)."""
    basis = torch.zeros(classes, classes - 1, dtype=torch.float64)
    for n in range(1, classes):
        basis[:n, n - 1] = 1 / math.sqrt(n * (n + 1))
        basis[n, n - 1] = -n / math.sqrt(n * (n + 1))
    return basis


def nearest_simplex(unit_PD: Tensor) -> Tensor:
    """Returns the regular simplex (all cosines −1/(P − 1)) whose vertices are nearest to the rows; P ≤ D + 1.

    With B the Helmert basis, every such simplex is √(P/(P − 1)) B R with orthonormal rows in R. Σ_j c_j·s_j
    is largest if R is the orthogonal factor of Bᵀc: orthogonal Procrustes, one SVD.
    """
    classes = len(unit_PD)
    if classes == 1:
        return unit_PD
    basis = helmert(classes).to(unit_PD.device)
    left, _, right = torch.linalg.svd(basis.T @ unit_PD, full_matrices=False)
    return normalise(basis @ (left @ right))


def minimise_energy(unit_PD: Tensor, iterations: int = 500, stats: RefineStats | None = None) -> Tensor:
    """Returns directions of at most the same energy, by L-BFGS over x with c = x/‖x‖, on the CPU.

    The gradient is minus the tangential force divided by ‖x‖; the energy does not depend on ‖x‖.
    """
    from scipy.optimize import minimize

    def energy_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        free_PD = torch.from_numpy(x).reshape(unit_PD.shape)
        c_PD = normalise(free_PD)
        gradient_PD = -tangent(force(c_PD), c_PD) / free_PD.norm(dim=1, keepdim=True)
        return float(energy(c_PD)), gradient_PD.reshape(-1).numpy()

    result = minimize(
        energy_and_gradient,
        unit_PD.cpu().numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "maxfun": 4 * iterations, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20},
    )
    if stats:
        stats.iterations += result.nit
    refined_PD = normalise(torch.from_numpy(result.x).reshape(unit_PD.shape)).to(unit_PD.device)
    return refined_PD if energy(refined_PD) <= energy(unit_PD) else unit_PD


@declares(REFINEMENTS["simplex"])
class Simplex(Thomson):
    """The regular simplex nearest to the round's means; for P > D + 1 Thomson followed by L-BFGS."""

    on_host = True

    def separate(self, unit_PD: Tensor, mask_PD: Tensor | None = None) -> Tensor:
        if len(unit_PD) <= unit_PD.shape[1] + 1:
            return nearest_simplex(unit_PD)
        return minimise_energy(super().separate(unit_PD), self.context.options["iterations"], self.stats)
