"""ProtoNorm's prototype alignment: the Thomson problem solved with momentum, Eq. (8)-(14), Algorithm 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS, SolverOptions
from hpcfl.methods.refine.base import OnSphere, RefineStats
from hpcfl.methods.sphere import distances, force, normalise, tangent

DECIMALS, FIRST = 4, 10
"""The solver stops once the mean force to 4 decimals is unchanged 10 times in a row (`solver_patience`).

From iteration 10 on, each is compared with the one before. Only the tangential force counts. Published code
takes the whole force (`whole`), whose radial part is always (P − 1)/2, and compares first in iteration 11: at
100 classes that part dominates, and the solver stops after 21 iterations, far from the minimum.
"""


def span(unit_PD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows' coordinates in the subspace that they span, [P, R], and its basis, [R, D].

    Forces stay in that subspace. For P < D products then cost P×P×P instead of P×P×D.
    """
    if len(unit_PD) >= unit_PD.shape[1]:
        return unit_PD, torch.eye(unit_PD.shape[1], dtype=unit_PD.dtype, device=unit_PD.device)
    basis_DP, triangle_PP = torch.linalg.qr(unit_PD.T)
    return normalise(triangle_PP.T), basis_DP.T


class Stopping:
    """Counts iterations until the mean force is unchanged `patience` times in a row."""

    def __init__(self, first: int, patience: int):
        self.first, self.patience = first, patience
        self.last: float | Tensor = math.nan
        self.unchanged: int | Tensor = 0
        self.iterations: int | Tensor = 0

    def keep(self, new_PR: Tensor, old_PR: Tensor) -> Tensor:
        """Returns the new directions, or the old ones after the last iteration."""
        return new_PR

    def stops(self, n: int, mean: Tensor) -> bool:
        """Returns whether iteration n, with this mean force, is the last."""
        rounded = round(mean.item(), DECIMALS)
        self.unchanged = self.unchanged + 1 if n >= self.first and rounded == self.last else 0
        self.last = rounded
        self.iterations += 1
        return bool(self.unchanged == self.patience)


class StoppingOnDevice(Stopping):
    """The same without waiting for the device: directions stay as they are after the last iteration."""

    done: Tensor | None = None

    def keep(self, new_PR: Tensor, old_PR: Tensor) -> Tensor:
        return new_PR if self.done is None else torch.where(self.done, old_PR, new_PR)

    def stops(self, n: int, mean: Tensor) -> bool:
        rounded = torch.round(mean, decimals=DECIMALS)
        if self.done is None:
            self.done = torch.zeros_like(mean, dtype=torch.bool)
        self.iterations = self.iterations + ~self.done
        unchanged = (rounded == self.last) & (n >= self.first)
        self.unchanged = (self.unchanged + 1) * unchanged
        self.last, self.done = rounded, self.done | (self.unchanged == self.patience)
        return False


def thomson(
    unit_PD: Tensor,
    options: SolverOptions,
    stats: RefineStats | None = None,
    trace: bool = False,
    mask_PD: Tensor | None = None,
) -> Tensor:
    """Returns the directions after the iterations of Eq. (11)-(14); forces are not projected.

    η is multiplied by its decay after every 10 iterations (published code also before the first one: the same
    as an η of 0.095). With masks only the part of a force within the mask of the class counts.
    """
    stats = stats or RefineStats()
    c_PR, basis_RD = span(unit_PD) if mask_PD is None else (unit_PD, None)
    v_PR = torch.zeros_like(c_PR)
    tangential = options.stopping == "tangent"
    first = FIRST if tangential else FIRST + 1
    stopping = (Stopping if c_PR.device.type == "cpu" or trace else StoppingOnDevice)(
        first, options.solver_patience
    )
    for n in range(options.iterations):
        if trace:
            _record_distances(c_PR, stats)
        start_PR, force_PR = c_PR, force(c_PR)  # (11)
        if mask_PD is not None:
            force_PR = force_PR * mask_PD
        lr = options.solver_lr * options.solver_decay ** (n // options.solver_decay_every)
        v_PR = options.solver_momentum * v_PR + lr * force_PR  # (12)
        c_PR = stopping.keep(normalise(c_PR + v_PR), start_PR)  # (13), (14)
        stopping_PR = tangent(force_PR, start_PR) if tangential else force_PR
        if stopping.stops(n, stopping_PR.norm(dim=1).mean()):
            break
    stats.iterations += stopping.iterations
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
        given = {name: self.context.options[name] for name in SolverOptions.model_fields}
        return thomson(unit_PD, SolverOptions(**given), self.stats, self.context.trace, mask_PD)
