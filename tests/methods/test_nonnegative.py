"""Own dimensions for every class: balanced, best, orthogonal; shared where there are too few."""

from itertools import permutations

import numpy as np
import pytest
import torch

from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.constant_weight_code import best_code, constant_weight_code, max_overlap
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.nonnegative import disjoint_dimensions, shared_dimensions
from tests.helpers.methods import build


def wishes(classes: int, features: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((classes, features))


@pytest.mark.parametrize(("classes", "features"), [(100, 512), (3, 3), (2, 7), (5, 6), (1, 4)])
def test_every_dimension_is_one_classs_and_numbers_differ_by_at_most_one(classes, features):
    own_KD = disjoint_dimensions(wishes(classes, features))
    assert (own_KD.sum(0) == 1).all()
    assert set(own_KD.sum(1)) <= {features // classes, -(-features // classes)}


@pytest.mark.parametrize("seed", range(4))
def test_no_other_balanced_assignment_has_a_larger_sum(seed):
    """Five dimensions, two classes: all 20 ways (sizes 2 and 3 either way) against the one that is found."""
    wish_KD = wishes(2, 5, seed)
    ways = {owners for sizes in ((0, 0, 1, 1, 1), (0, 0, 0, 1, 1)) for owners in permutations(sizes)}
    best = max(sum(wish_KD[owner, d] for d, owner in enumerate(owners)) for owners in ways)
    assert wish_KD[disjoint_dimensions(wish_KD)].sum() == pytest.approx(best)


def test_anchors_are_orthogonal_unit_and_reachable_and_follow_the_means():
    means_KD = torch.zeros(3, 6)
    for k, dims in enumerate([(0, 3), (1, 4), (2, 5)]):
        means_KD[k, list(dims)] = torch.tensor([5.0, 1.0])
    got = build((3, 6), name="anchor").refine(
        0, Prototypes.none(3, 6), Prototypes(means_KD, torch.ones(3).bool()), ()
    )
    torch.testing.assert_close(got.value_KD @ got.value_KD.T, torch.eye(3))
    assert (got.value_KD >= 0).all()
    assert torch.equal(got.value_KD > 0, means_KD > 0)


def test_classes_that_nobody_has_take_what_is_left():
    """Two classes seen of four: they get the dimensions they wish for as if the others wished for nothing."""
    rows = torch.rand(2, 10)
    value_KD, present_K = torch.zeros(4, 10), torch.tensor([True, False, True, False])
    value_KD[present_K] = rows
    upload = Upload(Prototypes(value_KD, present_K), torch.zeros(4, dtype=torch.int64), 0)
    got = build((4, 10), name="anchor").update_global(0, Prototypes.none(4, 10), [upload])
    wish_KD = np.zeros((4, 10))
    wish_KD[[0, 2]] = (rows.double() / rows.double().norm(dim=1, keepdim=True)).numpy()
    assert np.array_equal((got.value_KD > 0).numpy(), disjoint_dimensions(wish_KD))
    assert got.present_K.all()


@pytest.mark.parametrize("name", ["anchor-fixed", "simplex-fixed"])
def test_anchors_of_the_seed_need_nobody(name):
    start = build((4, 10), name=name).initial()
    assert start.present_K.all()
    torch.testing.assert_close(start.value_KD.norm(dim=1), torch.ones(4))
    assert torch.equal(start.value_KD, build((4, 10), name=name).initial().value_KD)
    assert not torch.equal(
        start.value_KD, build((4, 10), config=Config(seed=1), name=name).initial().value_KD
    )
    assert not build((4, 10), name=name.removesuffix("-fixed")).initial().present_K.any()


@pytest.mark.parametrize(
    ("words", "length", "weight", "most"),
    [
        *((6, 4, 2, 1), (7, 7, 3, 1), (10, 5, 2, 1), (10, 10, 5, 3), (20, 16, 4, 1), (20, 16, 8, 4)),
        *((30, 10, 4, 2), (62, 50, 5, 1), (100, 100, 10, 2), (100, 100, 50, 27)),
    ],
)
def test_words_are_different_of_equal_weight_and_far_apart(words, length, weight, most):
    """Among them the lines of two planes, 7 in 7 points and 20 in 16: no two share more than a point."""
    got_WL = constant_weight_code(words, length, weight, np.random.default_rng(0))
    assert np.array_equal(got_WL, constant_weight_code(words, length, weight, np.random.default_rng(0)))
    assert (got_WL.sum(1) == weight).all()
    assert len({row.tobytes() for row in got_WL}) == words
    assert max_overlap(got_WL) <= most
    distance_WW = (got_WL[:, None] != got_WL[None]).sum(2)
    assert distance_WW[np.triu_indices(words, 1)].min() == 2 * (weight - max_overlap(got_WL))


def test_with_more_classes_than_dimensions_sets_are_shared_as_little_as_possible():
    """A hundred classes in 64 dimensions: random sets of the same size overlap more."""
    found_WL = best_code(100, 64, key=0)
    weight = int(found_WL[0].sum())
    random = np.random.default_rng(1)
    drawn = np.zeros((100, 64), dtype=bool)
    for row in drawn:
        row[random.choice(64, weight, replace=False)] = True
    assert max_overlap(found_WL) < max_overlap(drawn)
    assert max_overlap(found_WL) / weight <= 1 / 6
    own_KD = shared_dimensions(wishes(100, 64), key=0)
    assert {row.tobytes() for row in own_KD} == {row.tobytes() for row in found_WL}
    means = Prototypes(torch.rand(100, 64), torch.ones(100).bool())
    got = build((100, 64), name="anchor").refine(0, Prototypes.none(100, 64), means, ())
    cosine = (got.value_KD @ got.value_KD.T).fill_diagonal_(0)
    assert cosine.max().item() == pytest.approx(max_overlap(found_WL) / weight)


def test_too_few_words_are_said():
    with pytest.raises(ValueError, match="fewer than 7"):
        constant_weight_code(7, 4, 2, np.random.default_rng(0))
    with pytest.raises(BadInput, match=r"refine = 'nonnegative': found no 7 different .*models\.features"):
        best_code(7, 4, 0)


@pytest.mark.parametrize("few", [0, 100])
def test_all_words_are_found_if_all_are_asked_for(few, monkeypatch):
    """Listed, or drawn again and again."""
    monkeypatch.setattr("hpcfl.methods.constant_weight_code.MAX_ENUMERATED", few)
    got_WL = constant_weight_code(20, 6, 3, np.random.default_rng(0))
    assert (got_WL.sum(1) == 3).all()
    assert len({row.tobytes() for row in got_WL}) == 20


def test_a_weight_whose_draws_run_out_is_passed_over(monkeypatch):
    def runs_out(words, length, weight, draw):
        if weight in dry:
            raise ValueError
        return constant_weight_code(words, length, weight, draw)

    monkeypatch.setattr("hpcfl.methods.constant_weight_code.constant_weight_code", runs_out)
    dry = [2, 3, 4, 5]
    assert best_code(12, 9, key=1)[0].sum() > 5
    dry = list(range(10))
    with pytest.raises(BadInput, match="found no 12 different sets of equal size among 9 dimensions"):
        best_code(12, 9, key=2)


def test_bad_input_that_only_the_server_meets_is_one_sentence(hpcfl, monkeypatch):
    def runs_out(*_):
        raise ValueError

    monkeypatch.setattr("hpcfl.methods.constant_weight_code.constant_weight_code", runs_out)
    for name in ("anchor", "anchor-fixed"):
        done = hpcfl("train", "--set=models.features=5", f"--set=method.name={name}", "--fresh")
        assert done.exit_code == 2
        assert "found no 6 different sets of equal size among 5 dimensions" in done.output
        assert "Traceback" not in done.output
