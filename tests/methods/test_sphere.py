"""ProtoNorm's Eq. (8)-(14), the simplex, and where they must end."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcfl.config.schema import Config, LogConfig
from hpcfl.methods.parts import SolverOptions
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import RefineStats
from hpcfl.methods.refine.simplex import helmert, minimise_energy, nearest_simplex
from hpcfl.methods.refine.thomson import Thomson, thomson
from hpcfl.methods.sphere import (
    directions,
    distances,
    energy,
    force,
    keyed_direction,
    normalise,
    simplex_bound,
    tangent,
)
from tests.helpers.methods import build


def points(classes: int, features: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return normalise(torch.randn(classes, features, dtype=torch.float64, generator=draw))


def cosines(unit_PD: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.tril_indices(len(unit_PD), len(unit_PD), -1)
    return (unit_PD @ unit_PD.T)[rows, columns]


def test_energy_and_force_are_eq_10_and_11():
    unit_PD = points(7, 4)
    want_energy, want_PD = 0.0, torch.zeros_like(unit_PD)
    for j in range(7):
        for k in range(7):
            gap_D = unit_PD[j] - unit_PD[k]
            if j != k:
                want_PD[j] += gap_D / gap_D.square().sum()
            if j < k:
                want_energy += math.log(1 / gap_D.norm())
    torch.testing.assert_close(force(unit_PD), want_PD)
    assert energy(unit_PD).item() == pytest.approx(want_energy)


def test_force_is_the_negative_gradient_and_its_radial_part_is_half_of_k_minus_1():
    unit_PD = points(6, 3)
    free_PD = unit_PD.clone().requires_grad_()
    energy(free_PD).backward()
    assert free_PD.grad is not None
    torch.testing.assert_close(force(unit_PD), -free_PD.grad)
    torch.testing.assert_close((force(unit_PD) * unit_PD).sum(1), torch.full((6,), 2.5, dtype=torch.float64))


def by_loops(
    unit_PD: torch.Tensor,
    iterations: int,
    lr: float = 0.1,
    momentum: float = 0.9,
    decay: float = 0.95,
    every: int = 10,
) -> torch.Tensor:
    """Algorithm 1 with the difference tensor, iteration by iteration."""
    c, v = unit_PD.clone(), torch.zeros_like(unit_PD)
    for n in range(1, iterations + 1):
        gap = c[:, None] - c[None]
        square = gap.square().sum(2) + torch.eye(len(c), dtype=c.dtype)
        v = momentum * v + lr * (gap / square[:, :, None]).sum(1)
        c = c + v
        c = c / c.norm(dim=1, keepdim=True)
        if n % every == 0:
            lr *= decay
    return c


@pytest.mark.parametrize(("classes", "features"), [(5, 12), (12, 5), (4, 4), (2, 3)])
def test_the_solver_takes_the_papers_steps(classes, features):
    """Also where it works in the span of the classes instead of all dimensions."""
    start, stats = points(classes, features), RefineStats()
    got = thomson(start, SolverOptions(iterations=23), stats)
    assert stats.iterations <= 23
    torch.testing.assert_close(got, by_loops(start, stats.iterations))


def test_it_stops_when_the_mean_force_is_unchanged_ten_times():
    """Two antipodal points do not move: iterations 0 to 9 are not counted, 10 to 19 are all the same."""
    stats = RefineStats()
    thomson(torch.tensor([[1.0, 0], [-1, 0]], dtype=torch.float64), SolverOptions(), stats)
    assert stats.iterations == 20
    torch.testing.assert_close(thomson(points(9, 3), SolverOptions(iterations=0)), points(9, 3))


def test_step_momentum_and_decay_are_options():
    start, stats = points(5, 4), RefineStats()
    method = build(
        (5, 4),
        name="protonorm",
        iterations=9,
        solver_lr=0.02,
        solver_momentum=0.5,
        solver_decay=0.7,
        solver_decay_every=3,
    )
    assert isinstance(method.refine, Thomson)
    got = method.refine.separate(start)
    torch.testing.assert_close(got, by_loops(start, 9, 0.02, 0.5, 0.7, 3))
    assert (got - thomson(start, SolverOptions(iterations=9), stats)).abs().max() > 0.01


@pytest.mark.parametrize(("stopping", "patience", "iterations"), [("tangent", 3, 13), ("whole", 3, 14)])
def test_patience_is_an_option(stopping, patience, iterations):
    """Two antipodal points: indices 10, 11 and 12 are unchanged; published code begins with index 11."""
    stats, options = RefineStats(), SolverOptions(stopping=stopping, solver_patience=patience)
    thomson(torch.tensor([[1.0, 0], [-1, 0]], dtype=torch.float64), options, stats)
    assert stats.iterations == iterations


def test_the_published_rule_ends_early_because_of_the_radial_part():
    start, ours, published = normalise(points(100, 512).abs() + 0.05), RefineStats(), RefineStats()
    better = thomson(start, SolverOptions(iterations=100), ours)
    worse = thomson(start, SolverOptions(stopping="whole"), published)
    assert (ours.iterations, published.iterations) == (100, 21), "published code leaves its loop at index 20"
    assert energy(better) < energy(worse)


@pytest.mark.parametrize(
    ("classes", "features", "smallest"),
    [
        (2, 3, 2.0),  # antipodal
        (3, 2, math.sqrt(3)),  # triangle
        (3, 5, math.sqrt(3)),
        (4, 3, math.sqrt(8 / 3)),  # tetrahedron
        (6, 3, math.sqrt(2)),  # octahedron
        (5, 2, 2 * math.sin(math.pi / 5)),  # pentagon
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_known_optima(classes, features, smallest, seed):
    ended = thomson(points(classes, features, seed), SolverOptions(iterations=500))
    assert distances(ended).min().item() == pytest.approx(smallest, abs=2e-3)
    assert distances(minimise_energy(ended)).min().item() == pytest.approx(smallest, abs=1e-6)


def test_in_high_dimension_momentum_comes_near_the_simplex_and_no_nearer_than_the_bound():
    """A hundred classes in 512 dimensions, all near one direction as after a ReLU."""
    start = normalise(points(100, 512).abs() + 0.05)
    ended = thomson(start, SolverOptions(iterations=1000))
    assert simplex_bound(100) == pytest.approx(-1740.414, abs=5e-4)
    assert simplex_bound(100) < energy(ended).item() < simplex_bound(100) + 1
    assert cosines(ended).max() < 0.05
    exact = nearest_simplex(start)
    assert energy(exact).item() == pytest.approx(simplex_bound(100), abs=1e-9)
    torch.testing.assert_close(cosines(exact), torch.full((4950,), -1 / 99, dtype=torch.float64))


@given(st.integers(2, 9), st.integers(0, 7), st.integers(0, 99))
def test_the_simplex_is_regular_and_nobodys_rotation_of_it_is_nearer(classes, spare, seed):
    """Also at P = D + 1, where it is full."""
    features = classes - 1 + spare
    unit_PD = points(classes, features, seed)
    got = nearest_simplex(unit_PD)
    torch.testing.assert_close(got.norm(dim=1), torch.ones(classes, dtype=torch.float64))
    want = torch.full((classes * (classes - 1) // 2,), -1 / (classes - 1), dtype=torch.float64)
    torch.testing.assert_close(cosines(got), want, atol=1e-9, rtol=0)
    for other in range(5):
        draw = torch.Generator().manual_seed(1000 * seed + other)
        turn, _ = torch.linalg.qr(torch.randn(features, features, dtype=torch.float64, generator=draw))
        assert (got @ turn * unit_PD).sum() <= (got * unit_PD).sum() + 1e-9


def test_the_basis_of_the_simplex():
    basis = helmert(6)
    torch.testing.assert_close(basis.T @ basis, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(basis.sum(0), torch.zeros(5, dtype=torch.float64))


@pytest.mark.parametrize(("classes", "features"), [(6, 2), (12, 3), (30, 4), (40, 16)])
@pytest.mark.parametrize("seed", range(2))
def test_the_better_optimiser_is_never_worse_than_momentum(classes, features, seed):
    ended = thomson(points(classes, features, seed), SolverOptions(iterations=500))
    better = minimise_energy(ended)
    assert energy(better) <= energy(ended)
    torch.testing.assert_close(better.norm(dim=1), torch.ones(classes, dtype=torch.float64))
    assert tangent(force(better), better).abs().max() < 1e-5 * classes, "it is where forces balance"


def refined(name: str, new: Prototypes, last: Prototypes | None = None, **settings: Any) -> Prototypes:
    dims = len(new.value_KD), new.value_KD.shape[1]
    return build(dims, refine=name, **settings).refine(0, last or Prototypes.none(*dims), new, ())


@pytest.mark.parametrize("name", ["thomson", "simplex"])
def test_absent_classes_stay_absent_and_the_others_are_placed_as_if_alone(name):
    value_KD = points(6, 8).float()
    value_KD[[1, 4]] = 0
    present_K = torch.tensor([True, False, True, True, False, True])
    got = refined(name, Prototypes(value_KD, present_K))
    assert torch.equal(got.present_K, present_K)
    assert not got.value_KD[~present_K].any()
    torch.testing.assert_close(
        cosines(got.value_KD[present_K].double()),
        torch.full((6,), -1 / 3, dtype=torch.float64),
        atol=2e-3,
        rtol=0,
    )


def test_with_more_classes_than_a_simplex_has_forces_balance_below_the_energy_of_momentum():
    """Twelve classes in three dimensions; what is sent is float32."""
    new = Prototypes(points(12, 3).float(), torch.ones(12).bool())
    placed = {name: refined(name, new, iterations=40).value_KD.double() for name in ("thomson", "simplex")}
    assert energy(placed["simplex"]) < energy(placed["thomson"])
    left = {name: tangent(force(unit_PD), unit_PD).norm(dim=1).max() for name, unit_PD in placed.items()}
    assert left["simplex"] < 1e-4 < left["thomson"]
    torch.testing.assert_close(placed["simplex"].norm(dim=1), torch.ones(12, dtype=torch.float64))


def test_one_class_alone_keeps_its_direction():
    value_KD = torch.tensor([[0.0, 0, 0], [3, 0, 4]])
    for name in ("thomson", "simplex"):
        got = refined(name, Prototypes(value_KD, torch.tensor([False, True])))
        torch.testing.assert_close(got.value_KD[1], torch.tensor([0.6, 0, 0.8]))


def test_a_zero_or_repeated_prototype_gets_its_last_direction_else_a_keyed_one():
    value_KD = torch.tensor([[2.0, 0, 0], [0, 0, 0], [4, 0, 0], [0, 0, 0]])
    last = Prototypes(torch.tensor([[0.0, 0, 0], [0, 3, 0], [0, 0, 5], [0, 0, 0]]), torch.ones(4).bool())
    got, _ = directions(Prototypes(value_KD, torch.ones(4).bool()), last, seed=7)
    want = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(got[:3], want)
    torch.testing.assert_close(got[3], keyed_direction(7, 3, 3))
    again, _ = directions(Prototypes(value_KD, torch.ones(4).bool()), last, seed=7)
    assert torch.equal(got, again)


def test_distances_of_every_iteration_are_kept_on_request():
    config = Config(log=LogConfig(distances=True))
    method = build((5, 4), config=config, name="protonorm", iterations=12)
    new = Prototypes(points(5, 4).float(), torch.ones(5).bool())
    got = method.refine(0, Prototypes.none(5, 4), new, ())
    kept = method.refine.stats.distances
    assert len(kept) == method.refine.stats.iterations + 1 == 13
    first, last = distances(points(5, 4)), distances(got.value_KD.double())
    assert kept[0] == pytest.approx((first.min().item(), first.mean().item(), first.max().item()), rel=1e-5)
    assert kept[-1] == pytest.approx((last.min().item(), last.mean().item(), last.max().item()), rel=1e-5)
