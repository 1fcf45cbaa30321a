"""PPA, CPKD and what is measured beside them, against explicit loops and numbers derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hpcfl.config.method import MethodConfig
from hpcfl.errors import BadInput
from hpcfl.methods.aggregate import Upload, mean, weighted_literal
from hpcfl.methods.catalogue import method_spec
from hpcfl.methods.metrics import personalisation
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from tests.helpers.methods import build

K, D = 4, 10


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
    got = build((K, D), clients=3, samples=16, aggregate="ppa").aggregate(products(count_MK, c_MKD))
    assert got.present_K.tolist() == [True, True, True, False]
    for j in range(3):
        want = K / 16 * sum(count_MK[i, j] * c_MKD[i, j] for i in range(3))
        torch.testing.assert_close(got.value_KD[j], want)


def test_remark_1():
    """Everybody has as many samples of every class: PPA is the mean (4), and M times Eq. (9)."""
    count_MK, c_MKD = torch.full((5, K), 7), torch.randn(5, K, D)
    got = build((K, D), clients=5, samples=5 * K * 7, aggregate="ppa").aggregate(products(count_MK, c_MKD))
    plain = [
        Upload(Prototypes(c_KD, n_K > 0), n_K, i)
        for i, (n_K, c_KD) in enumerate(zip(count_MK, c_MKD, strict=True))
    ]
    torch.testing.assert_close(got.value_KD, mean(plain).value_KD)
    torch.testing.assert_close(got.value_KD / 5, weighted_literal(plain).value_KD)


def test_with_equal_class_totals_ppa_is_eq_9_times_its_owners():
    """B.2 needs only that: K/n Σ n_ij c_ij = |N_j| · 1/|N_j| Σ n_ij c_ij / Σ_i n_ij."""
    count_MK = torch.tensor([[5, 0, 2, 3], [1, 6, 0, 3], [0, 0, 4, 0]])
    c_MKD = torch.randn(3, K, D)
    got = build((K, D), clients=3, samples=24, aggregate="ppa").aggregate(products(count_MK, c_MKD))
    plain = [
        Upload(Prototypes(c_KD * (n_K > 0)[:, None], n_K > 0), n_K, i)
        for i, (n_K, c_KD) in enumerate(zip(count_MK, c_MKD, strict=True))
    ]
    owners_K1 = (count_MK > 0).sum(0)[:, None]
    torch.testing.assert_close(got.value_KD, owners_K1 * weighted_literal(plain).value_KD)


def test_with_few_participants_a_class_of_one_owner_keeps_its_length():
    """Client 0 alone has class 0. Whatever fifth of ten clients comes: once all were seen, Eq. (11) holds."""
    count_MK = torch.ones(10, K, dtype=torch.int64)
    count_MK[1:, 0] = 0
    c_MKD = torch.ones(10, K, D)
    sent = products(count_MK, c_MKD)
    method, shared = build((K, D), clients=10, samples=31, aggregate="ppa"), Prototypes.none(K, D)
    lengths = []
    for t in range(8):
        shared = method.update_global(t, shared, [sent[2 * t % 10], sent[2 * t % 10 + 1]])
        lengths.append(shared.value_KD[0, 0].item())
    once_all_are_seen = K / 31
    assert lengths[0] == pytest.approx(10 / 2 * once_all_are_seen)
    assert lengths[4:] == pytest.approx([once_all_are_seen] * 4)
    assert lengths == sorted(lengths, reverse=True), "it never grows again, also when its owner is absent"


def test_a_client_that_comes_again_replaces_its_upload():
    count_MK, first, second = torch.tensor([[2, 2, 0, 0]]), torch.ones(1, K, D), 3 * torch.ones(1, K, D)
    rule = build((K, D), clients=1, samples=4, aggregate="ppa").aggregate
    rule(products(count_MK, first))
    torch.testing.assert_close(
        rule(products(count_MK, second)).value_KD[0], torch.full((D,), K / 4 * 2 * 3.0)
    )


def test_a_client_that_diverged_leaves_the_sum():
    """Its last upload of 10⁶ is gone in the next round, M / seen counts the others, also after a restart."""
    count_MK, c_MKD = torch.tensor([[2, 2, 0, 0], [1, 3, 0, 0], [2, 0, 4, 0]]), torch.randn(3, K, D)
    c_MKD[2] = 1e6
    uploads = products(count_MK, c_MKD)
    method, restarted = (build((K, D), clients=3, samples=14, aggregate="ppa") for _ in range(2))
    shared = method.update_global(0, Prototypes.none(K, D), uploads)
    assert shared.value_KD[0].max() > 1e5
    method.aggregate.drop([2])
    restarted.load(method.state())
    for each in (method, restarted):
        each.aggregate.drop([2])
        got = each.update_global(1, shared, uploads[:1])
        want = K / 14 * 3 / 2 * (2 * c_MKD[0, 0] + 1 * c_MKD[1, 0])
        torch.testing.assert_close(got.value_KD[0], want)
    assert got.present_K.tolist() == [True, True, True, False], "class 2 keeps its last prototype: stale"


def test_a_learning_server_gets_uploads_of_the_length_of_prototypes():
    """App. C: K/n·|N_j| times n_ij c_ij, here times M/|participants| as well; their mean is Eq. (11)'s."""
    count_MK, c_MKD = torch.tensor([[3, 0, 1, 2], [1, 2, 0, 2]]), torch.randn(2, K, D)
    method = build((K, D), clients=6, samples=30, refine="tgp", aggregate="ppa")
    uploads = products(count_MK, c_MKD)
    training_uploads = method.aggregate.training_uploads(uploads)
    owners = (count_MK > 0).sum(0)
    for i in range(2):
        for j in range(K):
            want = K * owners[j] * 6 / (30 * 2) * count_MK[i, j] * c_MKD[i, j]
            torch.testing.assert_close(training_uploads[i].prototypes.value_KD[j], want)
    torch.testing.assert_close(mean(training_uploads).value_KD, method.aggregate(uploads).value_KD)


def test_a_server_that_learns_from_products_is_one_that_learns_from_the_scaled_uploads():
    count_MK, c_MKD = torch.tensor([[3, 0, 1, 2], [1, 2, 0, 2]]), torch.randn(2, K, D)
    uploads = products(count_MK, c_MKD)
    method = build((K, D), clients=6, samples=30, refine="tgp", aggregate="ppa", server_epochs=3)
    plain = build((K, D), clients=6, samples=30, refine="tgp", server_epochs=3)
    got = method.update_global(0, Prototypes.none(K, D), uploads)
    assert got.equals(
        plain.update_global(0, Prototypes.none(K, D), method.aggregate.training_uploads(uploads))
    )
    assert not got.equals(plain.update_global(0, Prototypes.none(K, D), uploads))


def test_the_servers_memory_of_uploads_survives():
    count_MK, c_MKD = torch.tensor([[3, 0, 1, 2], [1, 2, 0, 0], [0, 0, 2, 1]]), torch.randn(3, K, D)
    uploads = products(count_MK, c_MKD)
    old, new = (build((K, D), clients=3, samples=12, aggregate="ppa") for _ in range(2))
    shared = old.update_global(0, Prototypes.none(K, D), uploads[:2])
    new.load(old.state())
    assert old.update_global(1, shared, uploads[2:]).equals(new.update_global(1, shared, uploads[2:]))
    assert build((K, D), aggregate="ppa").state()["aggregate.rows"].shape == (0, D)


def test_lengths_are_not_settled_before_everybody_was_heard():
    with pytest.raises(BadInput, match="settles lengths before every client was heard"):
        method_spec(MethodConfig(aggregate="ppa", anchor="first"), "any")


def test_forgetting_contradicts_what_ppa_keeps():
    with pytest.raises(BadInput, match="'ppa' goes on with every client's last upload"):
        method_spec(MethodConfig(aggregate="ppa", forget=True), "any")


# --- CPKD


def test_samples_weigh_as_their_class_does_at_the_client():
    """β = n/max n = 1, ½, ¼ for 8, 4 and 2 samples; divided by the batch, not by Σβ."""
    target = Prototypes(torch.zeros(K, D), torch.ones(K, dtype=torch.bool))
    pull = build((K, D), class_weights="proportional", distance="sq", weight=3.0).local_loss.bind(
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
    pull = build((K, D), class_weights="per-class", distance="euclid", weight=1.0).local_loss.bind(
        0, target, torch.tensor([8, 4, 2, 0])
    )
    z_BD = torch.zeros(4, D)
    z_BD[:, 0] = torch.tensor([1.0, 2, 4, 7])
    _, term = pull(z_BD, torch.tensor([0, 1, 1, 2]))["align"]
    assert term.item() == pytest.approx(1 + 3 / 2)


def test_balanced_is_the_mean_over_the_classes_of_a_batch():
    """FedTGP (11), ProtoNorm (5): class 0 is 1 away, class 1 (2 and 4) 3; class 2 has no global prototype."""
    target = Prototypes(torch.zeros(K, D), torch.tensor([True, True, False, True]))
    pull = build((K, D), class_weights="balanced", distance="euclid", weight=1.0).local_loss.bind(
        0, target, torch.tensor([8, 4, 2, 0])
    )
    z_BD = torch.zeros(4, D, requires_grad=True)
    with torch.no_grad():
        z_BD[:, 0] = torch.tensor([1.0, 2, 4, 7])
    _, term = pull(z_BD, torch.tensor([0, 1, 1, 2]))["align"]
    assert term.item() == pytest.approx((1 + 3 + 0) / 3)
    term.backward()
    assert z_BD.grad is not None
    assert z_BD.grad[:, 0].tolist() == pytest.approx([1 / 3, 1 / 6, 1 / 6, 0]), "each class pulls equally"


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
