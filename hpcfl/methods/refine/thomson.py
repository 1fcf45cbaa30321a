"""Prototype alignment: the Thomson problem by momentum, ProtoNorm Eq. (8)-(14) and Algorithm 1."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcfl.methods.refine.base import OnSphere, RefineStats
from hpcfl.methods.sphere import distances, force, normalise, tangent

LR, DECAY, EVERY = 0.1, 0.95, 10
"""η and its decay: × 0.95 after every 10 iterations (published code decays before the first one too)."""
MOMENTUM = 0.9
DECIMALS, PATIENCE = 4, 10
"""It ends when the mean force, to 4 decimals, stays the same 10 times in a row, counted from iteration 10.

Only the tangential part counts. Published code takes the whole force (`whole`), whose radial part is always
(P − 1)/2: at 100 classes it hides the rest, and the solver ends after 20 iterations, far from the minimum.
"""


def span(unit_PD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows' coordinates in the space they span, and its basis: forces never leave it.

    For P < D this makes the products P×P×P in place of P×P×D.
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
    """Returns the directions after at most so many iterations of Eq. (11)-(14); no tangent projection.

    With masks only the part of a force within the class's own dimensions moves it.
    """
    stats = stats or RefineStats()
    c_PR, basis_RD = span(unit_PD) if mask_PD is None else (unit_PD, None)
    v_PR = torch.zeros_like(c_PR)
    before, same = None, 0
    for n in range(iterations):
        if trace:
            _keep(c_PR, stats)
        before_PR, force_PR = c_PR, force(c_PR)  # (11)
        if mask_PD is not None:
            force_PR = force_PR * mask_PD
        v_PR = MOMENTUM * v_PR + LR * DECAY ** (n // EVERY) * force_PR  # (12)
        c_PR = normalise(c_PR + v_PR)  # (13), (14)
        stats.iterations += 1
        watched_PR = tangent(force_PR, before_PR) if stopping == "tangent" else force_PR
        mean = round(watched_PR.norm(dim=1).mean().item(), DECIMALS)
        same = same + 1 if n >= EVERY and mean == before else 0
        before = mean
        if same == PATIENCE:
            break
    if trace:
        _keep(c_PR, stats)
    return c_PR if basis_RD is None else normalise(c_PR @ basis_RD)


def _keep(c_PR: Tensor, stats: RefineStats) -> None:
    apart = distances(c_PR)
    if len(apart):
        stats.distances.append((apart.min().item(), apart.mean().item(), apart.max().item()))


class Thomson(OnSphere):
    """Starts from the round's means; the velocity starts at zero."""

    def place(self, unit_PD: Tensor, mask_PD: Tensor | None = None) -> Tensor:
        options, trace = self.context.options, self.context.trace
        return thomson(unit_PD, options["iterations"], self.stats, trace, options["stopping"], mask_PD)
