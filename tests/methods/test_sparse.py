"""CPS, PPA and CPKD against explicit loops and numbers derived by hand."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.comm.wire import Parcel, Wire
from hpcfl.config import Config, Federation
from hpcfl.config import Method as Settings
from hpcfl.errors import BadInput
from hpcfl.methods.aggregate import Upload, mean, weighted_literal
from hpcfl.methods.catalogue import recipe
from hpcfl.methods.guide import DISTANCES
from hpcfl.methods.measures import personalisation
from hpcfl.methods.method import Method, compose
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.rules import refuse_dims
from hpcfl.methods.sparse import blocks_of_class, bytes_of_masks, disjoint, masks
from hpcfl.methods.sphere import energy, normalise

K, D = 4, 10


def made(dims: tuple[int, int] = (K, D), clients: int = 20, samples: int = 1, **slots: Any) -> Method:
    chosen = Settings(**slots)
    config = Config(method=chosen, federation=Federation(clients=clients))
    return compose(recipe(chosen, "any"), config, dims, samples=samples)


# --- CPS


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 0.99))
def test_masks_are_blocks_of_equal_size_but_for_one(classes, features, share):
    """B = min(K, d) blocks of ⌊d/B⌋ or ⌈d/B⌉ neighbours; every class owns w = clamp(round(s·B/d), 1, B)."""
    mask_KD = masks(classes, features, share, seed=0)
    number = min(classes, features)
    own = max(1, min(number, int(share * number + 0.5)))
    edges = np.concatenate([[0], np.cumsum([len(p) for p in np.array_split(range(features), number)])])
    for row in mask_KD:
        whole = [row[a:b].all() for a, b in pairwise(edges)]
        assert [row[a:b].any() for a, b in pairwise(edges)] == whole
        assert sum(whole) == own
    if own == 1 and classes <= features:
        assert mask_KD.sum(0).tolist() == [1] * features
    assert disjoint(classes, features, share) == (own == 1 and classes <= features)


def test_a_number_of_dimensions_and_its_share_are_the_same():
    np.testing.assert_array_equal(masks(10, 500, 50, 0), masks(10, 500, 0.1, 0))
    assert blocks_of_class(10, 500, 250) == 5
    assert masks(10, 500, 50, 0).sum(1).tolist() == [50] * 10
    assert masks(4, 10, 10, 0).all(), "s = d leaves nothing out"


@pytest.mark.parametrize(
    ("classes", "features", "sparsity", "least"),
    [
        (10, 500, 250, 200),  # five of ten blocks of 50: no two share more than three
        (7, 49, 21, 28),  # three of seven blocks of 7: the lines of the Fano plane share one
        (20, 20, 4, 4),
        (30, 10, 5, 4),  # more classes than dimensions
    ],
)
def test_masks_are_far_apart(classes, features, sparsity, least):
    mask_KD = masks(classes, features, sparsity, seed=3)
    assert min((a != b).sum() for a, b in combinations(mask_KD, 2)) >= least


def test_where_there_are_fewer_sets_than_classes_each_is_used_equally_often():
    mask_KD = masks(8, 3, 2, seed=0)
    _, times = np.unique(mask_KD, axis=0, return_counts=True)
    assert sorted(times) == [2, 3, 3]


def test_the_paper_maps_a_mask_to_k_bits():
    """K = 10, d = 500: 10 bits a class, 13 bytes for all; Table 1's s = 50 leaves each class one block."""
    assert bytes_of_masks(10, 500) == 13
    assert disjoint(10, 500, 50)
    assert not disjoint(100, 500, 50)


def test_compressed_rows_become_structured_sparse_prototypes():
    """Eq. (7), (8): what arrives is m ⊙ c, at the cost of each class's own dimensions."""
    mask_KD = masks(3, 7, 0.3, seed=0)  # blocks of 3, 2 and 2 dimensions
    wire = Wire(3, 7, counts=False, mask_KD=mask_KD)
    present_K, value_RD = np.array([True, False, True]), np.arange(14, dtype=np.float32).reshape(2, 7)
    body = wire.pack_down(present_K, value_RD)
    assert body.nbytes == 1 + 4 * int(mask_KD[present_K].sum())
    np.testing.assert_array_equal(wire.unpack_down(body)[1], value_RD * mask_KD[present_K])
    (parcel,) = wire.unpack_up([wire.pack_up([Parcel(0, False, present_K, value_RD, np.empty(0))])])
    np.testing.assert_array_equal(parcel.value_RD, value_RD * mask_KD[present_K])


@pytest.mark.parametrize("masked", ["never", "loss", "always"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_loss_compares_the_whole_sample_or_only_the_own_dimensions(distance, masked):
    """Whatever is compared, mse divides by d."""
    method = made(sparsity=0.5, distance=distance, weight=1.0, masked=masked)
    assert method.mask_KD is not None
    mask_KD = torch.from_numpy(method.mask_KD)
    target = Prototypes(torch.randn(K, D) * mask_KD, torch.ones(K, dtype=torch.bool))
    z_BD, y_B = torch.randn(6, D), torch.tensor([0, 1, 2, 3, 0, 1])
    want = 0.0
    for z, y in zip(z_BD, y_B.tolist(), strict=True):
        own = [d for d in range(D) if mask_KD[y, d] or masked == "never"]
        gaps = [float(z[d] - target.value_KD[y, d]) ** 2 for d in own]
        a, b = z[own], target.value_KD[y, own]
        of = {"mse": sum(gaps) / D, "sq": sum(gaps), "euclid": sum(gaps) ** 0.5}
        want += of.get(distance, 1 - float(a @ b / (a.norm() * b.norm())))
    _, got = method.guide.at(0, target, torch.ones(K))(z_BD, y_B)["align"]
    assert got.item() == pytest.approx(want / 6, rel=1e-5)


@pytest.mark.parametrize("distance", ["mse", "cosine"])
@pytest.mark.parametrize("masked", ["never", "loss", "always"])
def test_prediction_compares_the_whole_sample_or_only_the_own_dimensions(masked, distance):
    method = made(sparsity=0.3, distance=distance, weight=1.0, masked=masked)
    assert method.mask_KD is not None
    mask_KD = torch.from_numpy(method.mask_KD)
    present_K = torch.tensor([True, True, True, False])
    prototypes = Prototypes(torch.randn(K, D) * mask_KD, present_K)
    z_ND = torch.randn(50, D)
    for z, got in zip(z_ND, method.nearest_N(z_ND, prototypes).tolist(), strict=True):
        apart = []
        for k in range(3):
            seen, c = (z * mask_KD[k] if masked == "always" else z), prototypes.value_KD[k]
            by_angle = 1 - torch.cosine_similarity(seen, c, dim=0)
            apart.append(float(by_angle if distance == "cosine" else (seen - c).norm()))
        assert got == int(np.argmin(apart))
    assert (method.nearest_N(z_ND, Prototypes.none(K, D)) == -1).all()


def uploads_in(mask_KD: np.ndarray, seed: int = 0, clients: int = 3) -> list[Upload]:
    draw = torch.Generator().manual_seed(seed)
    value = [torch.randn(len(mask_KD), mask_KD.shape[1], generator=draw).abs() for _ in range(clients)]
    everyone = torch.ones(len(mask_KD), dtype=torch.bool)
    return [
        Upload(Prototypes(v * torch.from_numpy(mask_KD), everyone), everyone.long(), i)
        for i, v in enumerate(value)
    ]


@pytest.mark.parametrize("refine", ["none", "thomson", "tgp", "orthogonal"])
@pytest.mark.parametrize("anchor", ["round", "first"])
def test_refinements_stay_within_the_masks(refine, anchor):
    if refine in ("tgp", "orthogonal") and anchor == "first":
        pytest.skip("refused")
    method = made(refine=refine, anchor=anchor, sparsity=0.5, weight=1.0)
    assert method.mask_KD is not None
    uploads = uploads_in(method.mask_KD)
    uploads[0].prototypes.value_KD[0] = 0  # a prototype without direction
    for upload in uploads[1:]:
        upload.prototypes.value_KD[0] = 0
    got = method.serve(0, method.start(), uploads)
    assert got.finite
    assert not got.value_KD[torch.from_numpy(~method.mask_KD)].any()
    if refine != "none":
        assert got.value_KD.any(1).all()


def test_thomson_moves_directions_apart_within_their_masks():
    method = made((8, 16), refine="thomson", sparsity=0.5, weight=1.0)
    assert method.mask_KD is not None
    uploads = uploads_in(method.mask_KD)
    got = method.serve(0, method.start(), uploads)
    before = energy(normalise(mean(uploads).value_KD.double()))
    assert energy(got.value_KD.double()) < before - 0.5


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        ({"refine": "simplex"}, "refine = 'simplex' has entries in every dimension, which masks forbid"),
        ({"refine": "nonnegative"}, "refine = 'nonnegative' chooses every class's dimensions itself"),
        ({"anchor": "seed"}, "with anchor = 'seed' nothing ever travels"),
    ],
)
def test_what_masks_do_not_go_with(slots, said):
    with pytest.raises(BadInput, match=said):
        recipe(Settings(sparsity=3, **slots), "any")


def test_masks_that_are_disjoint_leave_thomson_and_orthogonality_nothing_to_do():
    for refine in ("thomson", "orthogonal"):
        filled = recipe(Settings(refine=refine, sparsity=50), "any")
        with pytest.raises(BadInput, match=f"share none, so they are orthogonal and refine = '{refine}'"):
            refuse_dims(filled, 10, 500)
        refuse_dims(filled, 100, 500)
    with pytest.raises(BadInput, match=r"sparsity = 50: models.features has only 32 dimensions"):
        refuse_dims(recipe(Settings(sparsity=50), "any"), 6, 32)
    with pytest.raises(BadInput, match=r"method.masked = 'always': means nothing with method.sparsity = 0"):
        recipe(Settings(masked="always"), "any")


# --- PPA


def products(count_MK: torch.Tensor, c_MKD: torch.Tensor) -> list[Upload]:
    """What clients send: n_ij c_ij, and no counts."""
    nothing_K = torch.zeros(count_MK.shape[1], dtype=torch.int64)
    return [
        Upload(Prototypes(n_K[:, None] * c_KD, n_K > 0), nothing_K, i)
        for i, (n_K, c_KD) in enumerate(zip(count_MK, c_MKD, strict=True))
    ]


def test_ppa_is_eq_11():
    count_MK = torch.tensor([[3, 0, 1, 0], [1, 2, 0, 0], [0, 5, 4, 0]])
    c_MKD = torch.randn(3, K, D)
    got = made(clients=3, samples=16, aggregate="ppa").aggregate(products(count_MK, c_MKD))
    assert got.present_K.tolist() == [True, True, True, False]
    for j in range(3):
        want = K / 16 * sum(count_MK[i, j] * c_MKD[i, j] for i in range(3))
        torch.testing.assert_close(got.value_KD[j], want)


def test_remark_1():
    """Everybody has as many samples of every class: PPA is the mean (4), and M times Eq. (9)."""
    count_MK, c_MKD = torch.full((5, K), 7), torch.randn(5, K, D)
    got = made(clients=5, samples=5 * K * 7, aggregate="ppa").aggregate(products(count_MK, c_MKD))
    plain = [
        Upload(Prototypes(c_KD, n_K > 0), n_K, i)
        for i, (n_K, c_KD) in enumerate(zip(count_MK, c_MKD, strict=True))
    ]
    torch.testing.assert_close(got.value_KD, mean(plain).value_KD)
    torch.testing.assert_close(got.value_KD / 5, weighted_literal(plain).value_KD)


def test_with_few_participants_a_class_of_one_owner_keeps_its_length():
    """Client 0 alone has class 0. Whatever fifth of ten clients comes: once all were seen, Eq. (11) holds."""
    count_MK = torch.ones(10, K, dtype=torch.int64)
    count_MK[1:, 0] = 0
    c_MKD = torch.ones(10, K, D)
    sent = products(count_MK, c_MKD)
    method, shared = made(clients=10, samples=31, aggregate="ppa"), Prototypes.none(K, D)
    lengths = []
    for t in range(8):
        shared = method.serve(t, shared, [sent[2 * t % 10], sent[2 * t % 10 + 1]])
        lengths.append(shared.value_KD[0, 0].item())
    once_all_are_seen = K / 31
    assert lengths[0] == pytest.approx(10 / 2 * once_all_are_seen)
    assert lengths[4:] == pytest.approx([once_all_are_seen] * 4)
    assert lengths == sorted(lengths, reverse=True), "it never grows again, also when its owner is absent"


def test_a_client_that_comes_again_replaces_its_upload():
    count_MK, first, second = torch.tensor([[2, 2, 0, 0]]), torch.ones(1, K, D), 3 * torch.ones(1, K, D)
    rule = made(clients=1, samples=4, aggregate="ppa").aggregate
    rule(products(count_MK, first))
    torch.testing.assert_close(
        rule(products(count_MK, second)).value_KD[0], torch.full((D,), K / 4 * 2 * 3.0)
    )


def test_a_learning_server_gets_uploads_of_the_length_of_prototypes():
    """App. C: K/n·|N_j| times n_ij c_ij, here times M/|participants| as well; their mean is Eq. (11)'s."""
    count_MK, c_MKD = torch.tensor([[3, 0, 1, 2], [1, 2, 0, 2]]), torch.randn(2, K, D)
    method = made(clients=6, samples=30, refine="tgp", aggregate="ppa")
    uploads = products(count_MK, c_MKD)
    lessons = method.aggregate.lessons(uploads)
    owners = (count_MK > 0).sum(0)
    for i in range(2):
        for j in range(K):
            want = K * owners[j] * 6 / (30 * 2) * count_MK[i, j] * c_MKD[i, j]
            torch.testing.assert_close(lessons[i].prototypes.value_KD[j], want)
    torch.testing.assert_close(mean(lessons).value_KD, method.aggregate(uploads).value_KD)


def test_the_servers_memory_of_uploads_survives():
    count_MK, c_MKD = torch.tensor([[3, 0, 1, 2], [1, 2, 0, 0], [0, 0, 2, 1]]), torch.randn(3, K, D)
    uploads = products(count_MK, c_MKD)
    old, new = (made(clients=3, samples=12, aggregate="ppa") for _ in range(2))
    shared = old.serve(0, Prototypes.none(K, D), uploads[:2])
    new.load(old.state())
    assert old.serve(1, shared, uploads[2:]).equals(new.serve(1, shared, uploads[2:]))
    assert made(aggregate="ppa").state()["aggregate.rows"].shape == (0, D)


def test_forgetting_contradicts_what_ppa_keeps():
    with pytest.raises(BadInput, match="'ppa' goes on with every client's last upload"):
        recipe(Settings(aggregate="ppa", forget=True), "any")


# --- CPKD


def test_samples_weigh_as_their_class_does_at_the_client():
    """β = n/max n = 1, ½, ¼ for 8, 4 and 2 samples; divided by the batch, not by Σβ."""
    target = Prototypes(torch.zeros(K, D), torch.ones(K, dtype=torch.bool))
    pull = made(class_weights="proportional", distance="sq", weight=3.0).guide.at(
        0, target, torch.tensor([8, 4, 2, 0])
    )
    z_BD = torch.zeros(4, D)
    z_BD[:, 0] = torch.tensor([1.0, 2, 3, 4])
    weight, term = pull(z_BD, torch.tensor([0, 1, 2, 2]))["align"]
    assert weight == 3
    assert term.item() == pytest.approx((1 + 4 / 2 + 9 / 4 + 16 / 4) / 4)


def test_per_class_is_eq_12_on_the_batchs_own_prototypes():
    """Σ_j β_ij ρ(c̄_ij, c_j): class 1 has features 2 and 4, mean 3."""
    target = Prototypes(torch.zeros(K, D), torch.tensor([True, True, False, True]))
    pull = made(class_weights="per-class", distance="euclid", weight=1.0).guide.at(
        0, target, torch.tensor([8, 4, 2, 0])
    )
    z_BD = torch.zeros(4, D)
    z_BD[:, 0] = torch.tensor([1.0, 2, 4, 7])
    _, term = pull(z_BD, torch.tensor([0, 1, 1, 2]))["align"]
    assert term.item() == pytest.approx(1 + 3 / 2)


# --- what is measured


def test_dead_units_are_zero_for_all_samples_of_a_class():
    """Class 0: units 1 and 2 of three never speak; class 1: unit 0 does not; class 2 is nobody's."""
    means = ClassMeans(3, 3)
    means.add(torch.tensor([[1.0, 0, 0], [2, 0, 0], [0, 1, 0]]), torch.tensor([0, 0, 1]))
    means.add(torch.tensor([[0.0, 0, 5], [0, 0, 0]]), torch.tensor([1, 0]))
    np.testing.assert_allclose(means.dead_K(), [2 / 3, 1 / 3, np.nan])


def test_personalisation_by_hand():
    """Counts 0, 5, 10 become 0, ½, 1; norms 1, 3, 3 become 0, 1, 1: ½ apart. A proportional head: 0."""
    count_MK = np.array([[0, 5, 10], [2, 4, 6]])
    norm_MK = np.array([[1.0, 3, 3], [0.2, 0.4, 0.6]])
    assert personalisation(norm_MK, count_MK) == pytest.approx(0.5)
    norm_MK[0] = np.nan
    assert personalisation(norm_MK, count_MK) == pytest.approx(0)
    assert np.isnan(personalisation(norm_MK * np.nan, count_MK))
