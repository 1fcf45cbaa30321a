"""Whole runs with sparse rows, products in place of counts, curricula and unlabelled samples: the log."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.config.loading import load_config
from hpcfl.engine import rounds
from hpcfl.federation.run_plan import plan_run
from hpcfl.methods.sparse import masks
from tests.helpers.cases import KSHOT
from tests.helpers.runs import SMALL, train_log

FIVE_PARTICIPANTS = [
    *(*SMALL, "federation.rounds=5", "models.features=16"),
    *("log.prototypes_every=1", "federation.participation=5"),
]


@pytest.fixture
def run(hpcfl):
    """Returns `run(*settings)`: trains and reads the log."""
    return lambda *settings: train_log(hpcfl, *FIVE_PARTICIPANTS, *settings)


@pytest.mark.parametrize("aggregate", ["mean", "ppa"])
@pytest.mark.parametrize("sparsity", ["3", "0.5"])
def test_bytes_are_those_of_each_classes_own_dimensions(run, sparsity, aggregate):
    """Up Σ_i Σ_j∈i w_j·4, down |participants|·Σ_j w_j·4 over known classes; masks once: ⌈6·6/8⌉ bytes."""
    log = run(f"method.sparsity={sparsity}", f"method.aggregate={aggregate}")
    mask_KD = masks(6, 16, float(sparsity) if "." in sparsity else int(sparsity), seed=0)
    width_K = mask_KD.sum(1)
    assert len(set(width_K)) > 1, "16 dimensions do not divide by 6 classes"
    owns_MK, met_M, known_K = log["/clients/class_counts"] > 0, np.zeros(20, bool), np.zeros(6, bool)
    for t, who in enumerate(log["/round/participants"]):
        assert log["/round/bytes_up"][t] == 4 * (owns_MK[who] @ width_K).sum()
        assert log["/round/bytes_down"][t] == 5 * 4 * width_K[known_K].sum()
        assert log["/round/bytes_side"][t] == 5 * (1 + known_K.any())
        assert log["/round/bytes_masks"][t] == 5 * (who & ~met_M).sum()
        met_M |= who
        known_K |= owns_MK[who].any(0)
    assert not log["/prototypes/global"][:, ~mask_KD].any()


def test_masks_are_told_to_everybody_once_prototypes_are_settled(run):
    log = run("method.sparsity=3", "method.anchor=first", "method.aggregate=mean")
    assert log["/round/bytes_masks"].tolist() == [20 * 5, 0, 0, 0, 0]
    assert not run("method.aggregate=mean")["/round/bytes_masks"].any()


def test_no_class_count_is_on_the_wire_with_products(run, monkeypatch):
    """The uploads themselves: per client a header, a bit per array and per class, rows that are n_ij c_ij."""
    sent: list[bytes] = []
    original = rounds.encode_uploads

    def looking(codec, uploads):
        body = original(codec, uploads)
        sent.append(body.tobytes())
        return body

    monkeypatch.setattr(rounds, "encode_uploads", looking)
    everyone = ("federation.participation=1.0", "federation.rounds=1")
    log = run("method.aggregate=ppa", "method.name=fedproto", *everyone)
    owns_MK = log["/clients/class_counts"] > 0
    body = np.frombuffer(sent[0], dtype=np.uint8)
    before = 16 + 8 + 8
    assert body.nbytes == before * 20 + owns_MK.sum() * 16 * 4, "there is no room for counts"
    at, products = 0, {}
    for _ in range(20):
        client = int(body[at : at + 4].view("<i4")[0])
        bits = body[at + before - 8 : at + before]
        np.testing.assert_array_equal(np.unpackbits(bits, count=6), owns_MK[client])
        assert not bits[1:].any()
        end = at + before + owns_MK[client].sum() * 64
        products[client] = body[at + before : end].view("<f4").reshape(-1, 16)
        at = end
    plain = run("method.aggregate=mean", "log.local_prototypes=true", *everyone)["/prototypes/local"][0]
    for client, rows in products.items():
        count_R = log["/clients/class_counts"][client][owns_MK[client]]
        np.testing.assert_allclose(rows, plain[client][owns_MK[client]] * count_R[:, None], rtol=1e-6)
    n = log["/clients/class_counts"].sum()
    want_KD = 6 / n * np.nansum(plain * log["/clients/class_counts"][:, :, None], axis=0)
    np.testing.assert_allclose(log["/prototypes/global"][0], want_KD, rtol=1e-5, atol=1e-6)


def test_at_participation_one_fifth_a_class_of_one_owner_keeps_its_length(run):
    """Clients learn nothing: once all were seen, prototypes are Eq. (11)'s and stay, whoever comes."""
    frozen = (
        *("method.aggregate=ppa", "train.lr=1e-30", "federation.clients=10"),
        *("partition.name=pathological", "partition.classes_per_client=1"),
    )
    log = run(*frozen, "federation.rounds=25", "federation.participation=0.2")
    owners_K = (log["/clients/class_counts"] > 0).sum(0)
    seen = np.cumsum(log["/round/participants"], axis=0).astype(bool).all(1)
    assert owners_K.min() == 1
    assert 0 < seen.sum() < 25
    whole = run(*frozen, "federation.rounds=1", "federation.participation=1.0")["/prototypes/global"][0]
    for value_KD in log["/prototypes/global"][seen]:
        np.testing.assert_allclose(value_KD, whole, rtol=1e-4, atol=1e-6)


def test_a_loss_is_the_sum_of_its_parts(run):
    log = run(
        *("method.name=fedsap", "method.curriculum_start=1", "method.curriculum_end=3", "method.proxy=2.0"),
        "method.proxy_start=4",
    )
    np.testing.assert_allclose(log["/round/weight"], [0, 0.35, 0.7, 0.7, 0.7])
    ce, align, proxy = (log[f"/round/loss_{name}"] for name in ("ce", "align", "proxy"))
    assert np.isnan(align[0])
    assert np.isnan(proxy).tolist() == [True, True, True, False, False]
    whole = ce + np.nan_to_num(log["/round/weight"] * align) + 2 * np.nan_to_num(proxy)
    np.testing.assert_allclose(log["/round/loss"], whole, rtol=1e-5)
    assert np.isnan(log["/round/gradient_align"][0])
    assert (log["/round/gradient_align"][1:] > 0).all()
    assert np.isnan(log["/round/loss_consistency"]).all()
    assert np.isnan(run("method.name=local")["/round/weight"]).all()


@pytest.mark.parametrize("participation", ["1.0", "0.5"])
def test_unlabelled_samples(run, participation):
    """After two supervised rounds; thresholds are calibrated once per client and stay."""
    settings = (*KSHOT, f"federation.participation={participation}", "log.local_prototypes=true")
    log = run(*settings, "federation.rounds=8")
    plan = plan_run(load_config(None, [*FIVE_PARTICIPANTS, *settings]))
    pool_M = np.array([len(client.split.unlabelled) for client in plan.clients])
    accepted, limits, who = log["/client/accepted"], log["/client/thresholds"], log["/round/participants"]
    assert not accepted[:2].any()
    assert np.isnan(limits[:2]).all()
    assert (accepted <= pool_M).all()
    assert (accepted[2:].sum(1) > 0).all()
    assert not accepted[~who].any()
    np.testing.assert_array_equal(np.isfinite(limits[2:]).all(2), who[2:])
    for client in range(20):
        mine = limits[2:, client][who[2:, client]]
        assert (mine == mine[0]).all() if len(mine) else True
    right = log["/client/pseudo_accuracy"]
    assert np.isnan(right[accepted == 0]).all()
    assert ((right[accepted > 0] >= 0) & (right[accepted > 0] <= 1)).all()
    np.testing.assert_array_equal(log["/round/accepted"], accepted.sum(1))
    weighted = np.nansum(right * accepted, axis=1)[2:] / accepted.sum(1)[2:]
    np.testing.assert_allclose(log["/round/pseudo_accuracy"][2:], weighted)
    assert weighted.mean() > 0.4, "better than chance among three classes"
    assert np.isfinite(log["/round/loss_consistency"]).tolist() == [False] * 2 + [True] * 6
    if participation == "1.0":  # (14): directions change, lengths are those of the last supervised round
        lengths = np.linalg.norm(log["/prototypes/local"], axis=3)
        np.testing.assert_allclose(lengths[2:], np.broadcast_to(lengths[1], lengths[2:].shape), rtol=1e-5)
        assert np.nanmax(np.abs(log["/prototypes/local"][2] - log["/prototypes/local"][1])) > 1e-4


def test_a_phase_without_unlabelled_samples_is_refused(hpcfl):
    done = hpcfl("train", "--set=method.name=fedsap-ssl")
    assert done.exit_code == 2
    assert "method.semi = 100: no client has unlabelled samples" in done.output


def test_heads_and_dead_units_are_logged(run):
    log = run("federation.participation=4")
    norms, who = log["/client/head_norms"], log["/round/participants"]
    assert norms.shape == (5, 20, 6)
    seen = np.cumsum(who, axis=0).astype(bool)
    np.testing.assert_array_equal(np.isfinite(norms).all(2), seen)
    assert (norms[seen] > 0).all()
    still = seen[:-1] & ~who[1:]
    np.testing.assert_array_equal(norms[1:][still], norms[:-1][still])
    assert np.isfinite(log["/round/personalisation"]).all()
    dead = log["/prototypes/dead"]
    owned = np.array([(log["/clients/class_counts"][who_M] > 0).any(0) for who_M in who])
    np.testing.assert_array_equal(np.isfinite(dead), owned)
    assert ((dead[owned] >= 0) & (dead[owned] < 1)).all()
