import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from hpcfl.config.method import CurriculumName
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.methods.aggregate import Aggregate, mean, weighted, weighted_literal
from hpcfl.methods.infer import nearest_masked_N, nearest_N
from hpcfl.methods.local_loss import SHAPES
from hpcfl.methods.parts import AGGREGATES, DISTANCES, REFINEMENTS
from hpcfl.methods.plugins import load
from hpcfl.methods.prototypes import ClassMeans, Prototypes, margin_K
from hpcfl.methods.refine.base import Refinement
from hpcfl.methods.refine.trainable import TrainablePrototypes
from tests.helpers.methods import D, K, build, prototype_spec, uploads_of


def guided(distance: str, weight: float, z_BD: Tensor, y_B: Tensor, target: Prototypes) -> Tensor:
    """Returns the alignment term of a batch, with its weight."""
    method = build(distance=distance, weight=weight)
    own, term = method.local_loss.bind(0, target, torch.ones(K))(z_BD, y_B)["align"]
    return own * term


def test_class_means_are_eq_2():
    z_BD, y_B = torch.randn(20, D), torch.randint(0, K - 1, (20,))
    means = ClassMeans(K, D)
    means.add(z_BD[:7], y_B[:7])
    means.add(z_BD[7:], y_B[7:])
    got = means.prototypes()
    for k in range(K):
        mine = [z for z, y in zip(z_BD, y_B, strict=True) if y == k]
        assert bool(got.present_K[k]) == bool(mine)
        if mine:
            torch.testing.assert_close(got.value_KD[k], sum(mine) / len(mine))


def test_mean_is_eq_7_and_weighted_and_literal_are_eq_3_without_and_with_its_factor():
    uploads = uploads_of(6)
    plain, by_count, literal = mean(uploads), weighted(uploads), weighted_literal(uploads)
    assert not plain.present_K[-1]
    for j in range(K - 1):
        owners = [u for u in uploads if u.count_K[j] > 0]
        rows = [u.prototypes.value_KD[j] for u in owners]
        torch.testing.assert_close(plain.value_KD[j], sum(rows) / len(rows))
        n = sum(int(u.count_K[j]) for u in owners)
        want = sum(int(u.count_K[j]) / n * row for u, row in zip(owners, rows, strict=True))
        torch.testing.assert_close(by_count.value_KD[j], want)
        torch.testing.assert_close(literal.value_KD[j], want / len(owners))


@pytest.mark.parametrize("name", AGGREGATES)
def test_absent_classes_stay_absent_and_zero(name):
    got = build(aggregate=name).aggregate(uploads_of(3))
    assert not got.present_K[-1]
    assert not got.value_KD[-1].any()
    assert got.finite


def loops(distance: str, z_BD: Tensor, y_B: Tensor, target: Prototypes, weight: float) -> float:
    """Eq. (5) sample by sample; a label without a prototype adds nothing but counts."""
    total = 0.0
    for z_D, y in zip(z_BD.tolist(), y_B.tolist(), strict=True):
        if target.present_K[y]:
            c_D = target.value_KD[y].tolist()
            squares = [(a - b) ** 2 for a, b in zip(z_D, c_D, strict=True)]
            dot = sum(a * b for a, b in zip(z_D, c_D, strict=True))
            cosine = 1 - dot / math.hypot(*z_D) / math.hypot(*c_D)
            of = {
                "mse": sum(squares) / D,
                "sq": sum(squares),
                "euclid": sum(squares) ** 0.5,
                "cosine": cosine,
            }
            total += of[distance]
    return weight * total / len(y_B)


@pytest.mark.parametrize("distance", DISTANCES)
def test_guide_against_explicit_loops(distance):
    target = mean(uploads_of(4))
    z_BD, y_B = torch.randn(9, D), torch.tensor([0, 1, 2, 3, 4, 4, 0, 1, 2])
    got = guided(distance, 2.5, z_BD, y_B, target)
    assert got.item() == pytest.approx(loops(distance, z_BD, y_B, target, 2.5), rel=1e-5)


@pytest.mark.parametrize("distance", DISTANCES)
def test_guide_has_a_finite_gradient_on_the_prototype_itself(distance):
    target = mean(uploads_of(4))
    z_BD = target.value_KD[:2].clone().requires_grad_()
    guided(distance, 1.0, z_BD, torch.tensor([0, 1]), target).backward()
    assert z_BD.grad is not None
    torch.testing.assert_close(z_BD.grad, torch.zeros(2, D), atol=1e-6, rtol=0)


def test_the_cosine_guide_has_a_finite_gradient_at_zero():
    z_BD = torch.zeros(2, D, requires_grad=True)
    guided("cosine", 100.0, z_BD, torch.tensor([0, 1]), mean(uploads_of(4))).backward()
    assert z_BD.grad is not None
    assert z_BD.grad.isfinite().all()


def test_nearest_skips_absent_classes():
    prototypes = Prototypes(torch.tensor([[0.0, 0], [5, 0], [0.1, 0]]), torch.tensor([True, True, False]))
    assert nearest_N(torch.tensor([[0.2, 0], [4.0, 0]]), prototypes).tolist() == [0, 1]


def test_without_any_prototype_there_is_no_answer():
    assert nearest_N(torch.randn(3, 2), Prototypes.none(4, 2)).tolist() == [-1, -1, -1]


def test_by_angle_collapsed_features_are_told_apart():
    """Directions 2·10⁻⁴ apart: their cosines differ by 10⁻⁸, which float32 rounds to nothing."""
    common_D = torch.arange(1.0, 9.0)
    value_KD = common_D + 1e-3 * torch.eye(8)[:6]
    prototypes = Prototypes(value_KD, torch.ones(6, dtype=torch.bool))
    z_ND, y_N = torch.cat([value_KD * length for length in (0.3, 1.0, 7.0)]), torch.arange(6).repeat(3)
    assert nearest_N(z_ND, prototypes, by_angle=True).equal(y_N)
    everywhere_KD = torch.ones(6, 8, dtype=torch.bool)
    assert nearest_masked_N(z_ND, prototypes, everywhere_KD, by_angle=True).equal(y_N)
    tiny = Prototypes(1e-9 * value_KD, prototypes.present_K)
    assert nearest_N(1e-9 * z_ND, tiny, by_angle=True).equal(y_N)
    assert nearest_masked_N(1e-9 * z_ND, tiny, everywhere_KD, by_angle=True).equal(y_N)


@pytest.mark.parametrize(
    ("name", "distance", "weight"),
    [
        ("protonorm", "euclid", 1.0),
        ("protonorm", None, 10.0),
        ("protonorm", "cosine", 100.0),
        ("fedtgp", "euclid", 0.1),
        ("fedproto", "euclid", 0.1),
    ],
)
def test_a_weight_belongs_to_its_distance_and_its_paper(name, distance, weight):
    assert prototype_spec(name=name, distance=distance).weight == weight
    assert prototype_spec(name=name, distance=distance, weight=3.0).weight == 3


def test_margins_of_clients_are_those_of_what_is_sent_before_gamma():
    """Masked prototypes (3·γ, 0, 0) and (0, 4·γ, 0) are 5 apart; unmasked ones would be farther."""
    method = build((2, 4), refine="none", sparsity=2, scale=10.0)
    assert method.mask_KD is not None
    value_KD = torch.full((2, 4), 1000.0)
    for k, length in enumerate((30.0, 40.0)):
        own = torch.from_numpy(method.mask_KD[k])
        value_KD[k, own] = 0.0
        value_KD[k, own.nonzero()[0, 0]] = length
    got = method.local_margin_K(Prototypes(value_KD, torch.tensor([True, True])))
    assert got.tolist() == pytest.approx([5, 5])


@pytest.mark.parametrize("sparsity", [0, 0.5])
@pytest.mark.parametrize("name", ["fedproto", "protonorm", "fedtgp", "fedorgp"])
def test_random_prototypes_before_the_first_round(name, sparsity):
    """Unit length in keyed directions; of a server that trains, F(P̃) before its first step."""
    method = build((5, 8), name=name, initial="random", sparsity=sparsity)
    first = method.initial()
    assert first.present_K.all()
    assert first.equals(build((5, 8), name=name, initial="random", sparsity=sparsity).initial())
    if method.mask_KD is not None:
        assert not first.value_KD[~torch.from_numpy(method.mask_KD)].any()
    if isinstance(method.refine, TrainablePrototypes):
        assert first.value_KD.equal(method.refine.network.forward())
    else:
        torch.testing.assert_close(first.value_KD.norm(dim=1), torch.ones(5))
    other = build((5, 8), config=Config(seed=1), name=name, initial="random", sparsity=sparsity).initial()
    assert not first.equals(other)
    assert not build((5, 8), name=name).initial().present_K.any()


@pytest.mark.parametrize("anchor", ["first", "seed"])
def test_settled_prototypes_have_no_random_start(anchor):
    with pytest.raises(BadInput, match=f"method.initial = 'random': with anchor = '{anchor}'"):
        prototype_spec(anchor=anchor, initial="random")


def test_margin_by_hand():
    """Points 0, 3 and 7 on a line: nearest others are 3, 3 and 4 away; an absent class has no margin."""
    value_KD = torch.tensor([[0.0, 0], [3, 0], [7, 0], [1, 0]])
    margins = margin_K(Prototypes(value_KD, torch.tensor([True, True, True, False])))
    assert margins[:3].tolist() == [3, 3, 4]
    assert margins[3].isnan()
    alone = margin_K(Prototypes(value_KD, torch.tensor([True, False, False, False])))
    assert alone.isnan().all()


def test_a_class_that_nobody_uploads_keeps_its_last_prototype_unless_forgotten():
    last = Prototypes(torch.ones(K, D), torch.ones(K, dtype=torch.bool))
    kept = build(name="fedproto").update_global(0, last, uploads_of(3))
    assert kept.present_K.all()
    assert kept.value_KD[-1].eq(1).all()
    assert not build(forget=True).update_global(0, last, uploads_of(3)).present_K[-1]


def test_without_uploads_prototypes_stay():
    last = Prototypes(torch.ones(K, D), torch.ones(K, dtype=torch.bool))
    assert build(forget=True).update_global(0, last, []) is last


def test_scale_moves_the_target():
    shared = mean(uploads_of(3))
    assert torch.equal(build(scale=10.0).client_target(shared).value_KD, 10 * shared.value_KD)


def test_every_name_that_a_configuration_may_use_has_its_part():
    assert set(get_args(CurriculumName)) == set(SHAPES)
    for parts, base in ((AGGREGATES, Aggregate), (REFINEMENTS, Refinement)):
        for part in parts.values():
            assert issubclass(load(part.path), base)
    for distance in DISTANCES.values():
        assert load(distance.path)(torch.ones(2, D), torch.ones(2, D)).shape == (2,)


def test_a_slot_of_the_configuration_replaces_the_catalogues():
    assert prototype_spec().weight == 10
    assert prototype_spec(weight=3.0, aggregate="weighted-literal").weight == 3
    assert prototype_spec("spiral").aggregate == "weighted"
    assert prototype_spec("spiral", aggregate="mean").aggregate == "mean"


def test_a_weight_is_never_carried_to_another_distance():
    assert prototype_spec(distance="euclid").weight == 0.1
    assert prototype_spec(distance="euclid", weight=2.0).weight == 2
    with pytest.raises(BadInput, match=r"method.distance = 'sq': needs its own method.weight"):
        prototype_spec(distance="sq")


def test_sample_counts_travel_only_where_the_aggregation_weights_by_them():
    assert not prototype_spec().sends_counts
    assert prototype_spec(aggregate="weighted").sends_counts
    assert not prototype_spec(name="local").sends_counts


def test_directions_are_compared_where_the_guide_draws_by_angle():
    """(1, 0) is nearest to the short (0, 1) by distance, to the long (9, 1) by angle."""
    prototypes = Prototypes(torch.tensor([[0.0, 1], [9, 1]]), torch.tensor([True, True]))
    z = torch.tensor([[1.0, 0]])
    assert build().nearest_N(z, prototypes).tolist() == [0]
    assert build(distance="cosine").nearest_N(z, prototypes).tolist() == [1]


def test_by_angle_a_zero_prototype_is_at_a_right_angle_to_everything():
    prototypes = Prototypes(torch.tensor([[0.0, 0], [0.4, 0.9]]), torch.tensor([True, True]))
    assert build(distance="cosine").nearest_N(torch.tensor([[1.0, 0], [-1, 0]]), prototypes).tolist() == [
        1,
        0,
    ]


def test_a_round_without_uploads_notes_nothing_but_the_margin():
    method = build(name="fedtgp", server_epochs=1)
    shared = method.update_global(0, Prototypes.none(K, D), uploads_of(3))
    delta = method.refine.stats.delta
    assert method.refine.stats.iterations > 0
    assert method.update_global(1, shared, []) is shared
    assert (method.refine.stats.iterations, method.refine.stats.delta) == (0, delta)
    assert math.isnan(method.refine.stats.loss)


def test_gamma_is_the_datasets_for_unit_prototypes_and_1_elsewhere():
    for data, gamma in {"cifar10": 100, "cifar100": 200, "flowers102": 200, "tinyimagenet": 400}.items():
        assert prototype_spec(data, name="protonorm").scale == gamma  # ProtoNorm, Sect. 5.1
        assert prototype_spec(data, name="fedproto", refine="simplex").scale == gamma
        assert prototype_spec(data, name="protonorm", refine="none").scale == 1
        assert prototype_spec(data, name="simplex").scale == 1  # cosine: lengths do not matter
    assert prototype_spec("cifar100", name="fedtgp", scale=1.2).scale == 1.2  # ProtoNorm's Table 5


@pytest.mark.parametrize("slot", [{"weight": 1.0}, {"aggregate": "mean"}, {"infer": "global"}])
def test_local_has_no_slots_of_exchange(slot):
    with pytest.raises(BadInput, match=r"'local' (exchanges nothing|has no global)"):
        prototype_spec(name="local", **slot)
