"""Class-wise sparse prototypes (CPS) against explicit loops and numbers derived by hand."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.errors import BadInput
from hpcfl.exchange.codec import ClientUpload, Codec, decode_uploads, encode_uploads
from hpcfl.exchange.payload import Bytes, Payload, Rows, class_rows
from hpcfl.methods.aggregate import Upload, mean
from hpcfl.methods.parts import DISTANCES
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.rules import check_dims
from hpcfl.methods.sparse import blocks_per_class, bytes_of_masks, disjoint, masks
from hpcfl.methods.sphere import energy, normalise
from tests.helpers.methods import build, prototype_spec

K, D = 4, 10


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
    assert blocks_per_class(10, 500, 250) == 5
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
    codec = Codec([Rows("prototypes", 3, 7, mask_KD=mask_KD)])
    present_K = torch.tensor([True, False, True])
    value_KD = torch.arange(1.0, 22.0).reshape(3, 7) * present_K[:, None]
    payload: Payload = {"prototypes": Prototypes(value_KD, present_K)}
    own = 4 * int(mask_KD[present_K.numpy()].sum())
    assert codec.nbytes(payload) == Bytes(own, 1)
    message = codec.encode(payload)
    assert message.nbytes == 8 + 8 + -(-own // 8) * 8, "the arrays that there are, a bitmap, the rows"
    want = value_KD * torch.from_numpy(mask_KD)
    assert torch.equal(class_rows(codec.decode(message), "prototypes").value_KD, want)
    (upload,) = decode_uploads(codec, [encode_uploads(codec, [ClientUpload(0, False, payload)])])
    assert torch.equal(class_rows(upload.payload, "prototypes").value_KD, want)


@pytest.mark.parametrize("masked", ["never", "loss", "always"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_the_loss_compares_the_whole_sample_or_only_the_own_dimensions(distance, masked):
    """Whatever is compared, mse divides by d."""
    method = build((K, D), sparsity=0.5, distance=distance, weight=1.0, masked=masked)
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
    _, got = method.local_loss.bind(0, target, torch.ones(K))(z_BD, y_B)["align"]
    assert got.item() == pytest.approx(want / 6, rel=1e-5)


@pytest.mark.parametrize("distance", ["mse", "cosine"])
@pytest.mark.parametrize("masked", ["never", "loss", "always"])
def test_prediction_compares_the_whole_sample_or_only_the_own_dimensions(masked, distance):
    method = build((K, D), sparsity=0.3, distance=distance, weight=1.0, masked=masked)
    assert method.mask_KD is not None
    mask_KD = torch.from_numpy(method.mask_KD)
    present_K = torch.tensor([True, True, True, False])
    prototypes = Prototypes(torch.randn(K, D), present_K)  # a client's own have entries everywhere
    z_ND = torch.randn(50, D)
    for z, got in zip(z_ND, method.nearest_N(z_ND, prototypes).tolist(), strict=True):
        apart = []
        for k in range(3):
            own_D = mask_KD[k] if masked == "always" else torch.ones(D)
            seen, c = z * own_D, prototypes.value_KD[k] * own_D
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
    method = build((K, D), refine=refine, anchor=anchor, sparsity=0.5, weight=1.0)
    assert method.mask_KD is not None
    uploads = uploads_in(method.mask_KD)
    uploads[0].prototypes.value_KD[0] = 0  # a prototype without direction
    for upload in uploads[1:]:
        upload.prototypes.value_KD[0] = 0
    got = method.update_global(0, method.initial(), uploads)
    assert got.finite
    assert not got.value_KD[torch.from_numpy(~method.mask_KD)].any()
    if refine != "none":
        assert got.value_KD.any(1).all()


def test_thomson_moves_directions_apart_within_their_masks():
    method = build((8, 16), refine="thomson", sparsity=0.5, weight=1.0)
    assert method.mask_KD is not None
    uploads = uploads_in(method.mask_KD)
    got = method.update_global(0, method.initial(), uploads)
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
        prototype_spec(sparsity=3, **slots)


def test_masks_that_are_disjoint_leave_thomson_and_orthogonality_nothing_to_do():
    for refine in ("thomson", "orthogonal"):
        filled = prototype_spec(refine=refine, sparsity=50)
        with pytest.raises(BadInput, match=f"share none, so they are orthogonal and refine = '{refine}'"):
            check_dims(filled, 10, 500)
        check_dims(filled, 100, 500)
    with pytest.raises(BadInput, match=r"sparsity = 50: models.features has only 32 dimensions"):
        check_dims(prototype_spec(sparsity=50), 6, 32)
    with pytest.raises(BadInput, match=r"method.masked = 'always': means nothing with method.sparsity = 0"):
        prototype_spec(masked="always")
