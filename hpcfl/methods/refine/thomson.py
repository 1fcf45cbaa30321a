"""ProtoNorm's prototype alignment: the Thomson problem solved with momentum, Eq. (8)-(14), Algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.refine.base import OnSphere, RefineStats
from hpcfl.methods.sphere import distances, force, normalise, tangent

LR, DECAY, EVERY = 0.1, 0.95, 10
"""η, multiplied by 0.95 after every 10 iterations (published code also before the first one)."""
MOMENTUM = 0.9
DECIMALS, PATIENCE = 4, 10
"""The solver stops, from iteration 10 on, once the mean force to 4 decimals is unchanged 10 times in a row.

Only the tangential force counts. Published code takes the whole force (`whole`), whose radial part is always
(P − 1)/2: at 100 classes it dominates, and the solver stops after 20 iterations, far from the minimum.
"""


def span(unit_PD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows' coordinates in the subspace that they span, [P, R], and its basis, [R, D].

    Forces stay in that subspace. For P < D products then cost P×P×P instead of P×P×D.
    """
    if len(unit_PD) >= unit_PD.shape[1]:
        return unit_PD, torch.eye(unit_PD.shape[1], dtype=unit_PD.dtype, device=unit_PD.device)
    basis_DP, triangle_PP = torch.linalg.qr(unit_PD.T)
    return normalise(triangle_PP.T), basis_DP.T


def thomson(
    unit_PD: Tensor,
    iterations: int,
    stats: RefineStats | None = None,
    trace: bool = False,
    stopping: str = "tangent",
    mask_PD: Tensor | None = None,
) -> Tensor:
    """Returns the directions after at most so many iterations of Eq. (11)-(14); forces are not projected.

    With masks only the part of a force within the mask of the class counts.
    """
    stats = stats or RefineStats()
    c_PR, basis_RD = span(unit_PD) if mask_PD is None else (unit_PD, None)
    v_PR = torch.zeros_like(c_PR)
    last_mean, unchanged = None, 0
    for n in range(iterations):
        if trace:
            _record_distances(c_PR, stats)
        start_PR, force_PR = c_PR, force(c_PR)  # (11)
        if mask_PD is not None:
            force_PR = force_PR * mask_PD
        v_PR = MOMENTUM * v_PR + LR * DECAY ** (n // EVERY) * force_PR  # (12)
        c_PR = normalise(c_PR + v_PR)  # (13), (14)
        stats.iterations += 1
        stopping_PR = tangent(force_PR, start_PR) if stopping == "tangent" else force_PR
        mean = round(stopping_PR.norm(dim=1).mean().item(), DECIMALS)
        unchanged = unchanged + 1 if n >= EVERY and mean == last_mean else 0
        last_mean = mean
        if unchanged == PATIENCE:
            break
    if trace:
        _record_distances(c_PR, stats)
    return c_PR if basis_RD is None else normalise(c_PR @ basis_RD)


def _record_distances(c_PR: Tensor, stats: RefineStats) -> None:
    pairwise = distances(c_PR)
    if len(pairwise):
        stats.distances.append((pairwise.min().item(), pairwise.mean().item(), pairwise.max().item()))


@declares(REFINEMENTS["thomson"])
class Thomson(OnSphere):
    """The Thomson solver, started from the directions of the round's means with zero velocity."""

    def separate(self, unit_PD: Tensor, mask_PD: Tensor | None = None) -> Tensor:
        options, trace = self.context.options, self.context.trace
        return thomson(unit_PD, options["iterations"], self.stats, trace, options["stopping"], mask_PD)
