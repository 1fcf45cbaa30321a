"""FedSAP: curriculum, proxy loss and the semi-supervised phase by hand and by loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from hpcfl.errors import BadInput
from hpcfl.methods.metrics import silhouette
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.pseudo_labels import PseudoLabels, accept, pseudo_labels, thresholds, with_last_length
from hpcfl.methods.rules import remarks
from tests.helpers.methods import build, prototype_spec

K, D = 4, 3


def weights(**slots: Any) -> dict[int, float]:
    """Returns λ in some rounds, counted from 1."""
    local_loss = build((K, D), name="fedsap", **slots).local_loss
    return {t: local_loss.weight(t - 1) for t in (1, 20, 21, 40, 60, 80, 100, 150)}


def test_the_appendix_curriculum():
    """0 up to round 20, then linear to 0.7 in round 100, then constant."""
    want = {1: 0, 20: 0, 21: 0.7 / 80, 40: 0.175, 60: 0.35, 80: 0.525, 100: 0.7, 150: 0.7}
    assert weights() == pytest.approx(want)


def test_eq_7_starts_with_the_first_round():
    """M·min(t/t_w, 1) with t_w = 80."""
    got = weights(curriculum_start=0, curriculum_end=80)
    assert got == pytest.approx({t: 0.7 * min(t / 80, 1) for t in got})


@pytest.mark.parametrize(
    ("shape", "quarter"),
    [
        ("constant", 1.0),
        ("linear", 0.25),
        ("cosine", (1 - math.cos(math.pi / 4)) / 2),
        (
            "sigmoid",
            (1 / (1 + math.e**2.5) - 1 / (1 + math.e**5)) / (1 / (1 + math.e**-5) - 1 / (1 + math.e**5)),
        ),
        ("step", 0.0),
    ],
)
def test_shapes_of_the_curriculum(shape, quarter):
    """Rounds 20, 40, 60 and 100 are u = 0, ¼, ½ and 1; all but the constant and the step are ½ at ½."""
    got = weights(curriculum=shape)
    assert got[40] == pytest.approx(0.7 * quarter)
    assert got[60] == pytest.approx({"constant": 0.7, "step": 0.7}.get(shape, 0.35))
    assert got[100] == got[150] == pytest.approx(0.7)
    assert got[20] == pytest.approx(0.7 if shape == "constant" else 0)


def test_the_proxy_loss_is_eq_9():
    """Over classes with a prototype; a label without one adds nothing but counts in the mean."""
    target = Prototypes(torch.randn(K, D), torch.tensor([True, True, True, False]))
    z_BD, y_B = torch.randn(5, D), torch.tensor([0, 1, 2, 3, 1])
    weight, got = build((K, D), name="fedsap", proxy=2.0).local_loss.bind(0, target, torch.ones(K))(
        z_BD, y_B
    )["proxy"]
    total = 0.0
    for z, y in zip(z_BD, y_B.tolist(), strict=True):
        if y < 3:
            logits = [32 * float(torch.cosine_similarity(z, target.value_KD[c], dim=0)) for c in range(3)]
            total -= logits[y] - math.log(sum(math.exp(logit) for logit in logits))
    assert weight == 2
    assert got.item() == pytest.approx(total / 5, rel=1e-5)


def test_the_proxy_term_starts_when_it_should_and_is_finite_everywhere():
    target = Prototypes(torch.randn(K, D), torch.tensor([True, True, True, False]))
    local_loss = build((K, D), name="fedsap", proxy_start=5).local_loss
    z_BD = torch.zeros(2, D, requires_grad=True)
    for t, there in ((0, False), (3, False), (4, True)):
        assert ("proxy" in local_loss.bind(t, target, torch.ones(K))(z_BD, torch.tensor([0, 3]))) == there
    _, term = local_loss.bind(4, target, torch.ones(K))(z_BD, torch.tensor([0, 3]))["proxy"]
    term.backward()
    assert z_BD.grad is not None
    assert z_BD.grad.isfinite().all()


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (
            {"curriculum": "constant", "curriculum_end": 9},
            "curriculum_end = 9: means nothing with method.cur",
        ),
        ({"curriculum_start": 100}, "curriculum_end = 100: must come after method.curriculum_start = 100"),
        ({"proxy": 0.0, "proxy_scale": 8.0}, "proxy_scale = 8.0: means nothing with method.proxy = 0"),
        ({"mix": 0.1}, "mix = 0.1: means nothing with method.semi = 0"),
    ],
)
def test_what_means_nothing_is_refused(slots, said):
    with pytest.raises(BadInput, match=said):
        prototype_spec(name="fedsap", **slots)


def test_parts_of_a_schedule_that_a_run_never_reaches_are_said():
    filled = prototype_spec(name="fedsap-ssl")
    curriculum, phase = remarks(filled, 10, 64, 30)
    assert "at its top in round 100, the run ends in round 30" in curriculum
    assert "after round 100, the run ends before" in phase
    assert remarks(filled, 10, 64, 150) == []
    assert remarks(prototype_spec(name="fedsap", curriculum="step"), 10, 64, 60) == []


AXES = Prototypes(torch.eye(4, 3)[:, [0, 1, 2]], torch.tensor([True, True, True, False]))
"""Three classes along the axes; a fourth without a prototype."""


def test_a_pseudo_label_by_hand():
    """(3, 4, 0) has cosines 0.6, 0.8, 0: class 1 at 0.2, the next 0.2 farther, whatever its length."""
    found = pseudo_labels(torch.tensor([[3.0, 4, 0], [30, 40, 0], [0, 0, 2]]), AXES)
    assert found.class_N.tolist() == [1, 1, 2]
    np.testing.assert_allclose(found.distance_N, [0.2, 0.2, 0], atol=1e-12)
    np.testing.assert_allclose(found.margin_N, [0.2, 0.2, 1], atol=1e-12)


def test_acceptance_is_eq_11_with_both_inequalities_strict():
    found = PseudoLabels(
        torch.tensor([0, 0, 0, 0]), torch.tensor([0.1, 0.3, 0.1, 0.2]), torch.tensor([0.5, 0.5, 0.2, 0.5])
    )
    assert accept(found, torch.tensor([0.2, 0.3])).tolist() == [True, False, False, True]
    assert not accept(found, torch.tensor([math.nan, 0.3])).any()


def test_thresholds_by_hand():
    """Margins 0.2, 1, 0.2 (median 0.2); distances to the true classes 0.2, 0, 0.4, 90% between the last two.

    The third sample, (3, 4, 0) of class 0, is nearer to class 1; the fourth's class has no prototype.
    """
    z_ND = torch.tensor([[3.0, 4, 0], [0, 0, 2], [3, 4, 0], [1, 1, 1]])
    got = thresholds(z_ND, torch.tensor([1, 2, 0, 3]), AXES, 0.5, 0.9)
    np.testing.assert_allclose(got, [0.2, 0.2 + 0.8 * 0.2], atol=1e-12)
    assert thresholds(z_ND[:1], torch.tensor([3]), AXES, 0.5, 0.9).isnan().all()


def test_with_a_single_candidate_the_margin_is_infinite_and_without_any_nothing_is_accepted():
    one = Prototypes(torch.eye(3), torch.tensor([False, True, False]))
    found = pseudo_labels(torch.tensor([[1.0, 2, 0]]), one)
    assert (found.class_N.item(), found.margin_N.item()) == (1, math.inf)
    nobody = pseudo_labels(torch.tensor([[1.0, 2, 0]]), Prototypes.none(3, 3))
    assert not accept(nobody, torch.tensor([0.0, 9.0])).any()


def test_mixed_prototypes_are_eq_14_with_the_last_length():
    """Labelled (2, 0, 0) and (4, 0, 0), accepted (0, 9, 0), α = ½: (6, 4.5, 0)/2.5 = (2.4, 1.8, 0), length 3.

    Its direction is (0.8, 0.6, 0); the class was 5 long before, a class without a past keeps its length.
    """
    means = ClassMeans(2, 3)
    means.add(torch.tensor([[2.0, 0, 0], [4, 0, 0], [0, 0, 7]]), torch.tensor([0, 0, 1]))
    means.add_weighted(torch.tensor([[0.0, 9, 0]]), torch.tensor([0]), 0.5)
    mixed = means.prototypes()
    torch.testing.assert_close(mixed.value_KD[0], torch.tensor([2.4, 1.8, 0]))
    for known in (False, True):  # a last prototype of length 0 says nothing either
        last = Prototypes(torch.tensor([[0.0, 0, 5], [0, 0, 0]]), torch.tensor([True, known]))
        got = with_last_length(mixed, last)
        torch.testing.assert_close(got.value_KD, torch.tensor([[4.0, 3, 0], [0, 0, 7]]))


def test_consistency_is_eq_12():
    target = Prototypes(torch.randn(K, D), torch.ones(K, dtype=torch.bool))
    z_UD, y_U = torch.randn(3, D), torch.tensor([2, 0, 2])
    pull = build((K, D), name="fedsap", semi=1, consistency=0.5).local_loss.bind(5, target, torch.ones(K))
    terms = pull(torch.randn(2, D), torch.tensor([0, 1]), (z_UD, y_U))
    weight, got = terms["consistency"]
    want = sum(
        1 - torch.cosine_similarity(z, target.value_KD[y], dim=0) for z, y in zip(z_UD, y_U, strict=True)
    )
    assert weight == 0.5
    assert got.item() == pytest.approx(float(want) / 3, rel=1e-5)


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_the_silhouette_is_that_of_explicit_loops(shift):
    draw = torch.Generator().manual_seed(0)
    z_ND, y_N = torch.randn(30, 5, generator=draw), torch.tensor([7] * 12 + [3] * 10 + [0] * 7 + [9])
    z_ND[:12, 0] += shift
    z_ND[4] = 0
    unit = torch.nn.functional.normalize(z_ND.double())
    apart = 1 - unit @ unit.T
    apart.fill_diagonal_(0)
    scores = []
    for i in range(30):
        mine = [j for j in range(30) if y_N[j] == y_N[i] and j != i]
        if not mine:
            scores.append(0.0)
            continue
        a = float(apart[i, mine].mean())
        b = min(float(apart[i, y_N == k].mean()) for k in (7, 3, 0, 9) if k != y_N[i])
        scores.append((b - a) / max(a, b))
    assert silhouette(z_ND, y_N) == pytest.approx(np.mean(scores))
    assert math.isnan(silhouette(z_ND, torch.ones(30, dtype=torch.int64)))
