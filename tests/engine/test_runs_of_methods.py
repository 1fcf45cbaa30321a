"""Whole runs of the methods in one process: bytes, metrics and prototypes in the log."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.engine.server import Server
from hpcfl.engine.worker import Worker
from hpcfl.exchange.payload import class_rows
from hpcfl.log.reader import read_log
from hpcfl.methods.catalogue import PROTOTYPE_METHODS
from hpcfl.training.local_client import LocalClient
from tests.helpers.cases import OWN
from tests.helpers.runs import SMALL, options, train_log

SEVEN_PARTICIPANTS = [*SMALL, "log.prototypes_every=1", "federation.participation=7"]


@pytest.fixture
def run(hpcfl):
    """Returns `run(method, *settings)`: trains and reads the log."""
    return lambda method, *settings: train_log(hpcfl, *SEVEN_PARTICIPANTS, f"method.name={method}", *settings)


def test_anchors_go_up_and_down_in_the_first_round_and_never_again(run):
    """Seven participants upload; the anchors go to all twenty clients, with a byte of class bits each."""
    log = run("anchor", "federation.rounds=6")
    owned_M = (log["/clients/class_counts"] > 0).sum(1)
    uploaded = owned_M[log["/round/participants"][0]].sum() * 8 * 4
    assert log["/round/bytes_up"].tolist() == [uploaded] + [0] * 5
    assert log["/round/bytes_down"].tolist() == [20 * 6 * 8 * 4] + [0] * 5
    assert log["/round/bytes_side"].tolist() == [7 + 20] + [0] * 5
    assert log["/round/uploads"].tolist() == [7] + [0] * 5
    assert not log["/refine/iterations"].any()
    same = log["/prototypes/global"]
    assert (same == same[0]).all()
    np.testing.assert_allclose(same[0] @ same[0].T, np.eye(6), atol=1e-6)


@pytest.mark.parametrize("name", ["anchor-fixed", "simplex-fixed"])
def test_anchors_of_the_seed_are_never_sent_and_guide_from_the_first_round(run, name):
    log = run(name)
    for what in ("bytes_up", "bytes_down", "bytes_side", "uploads"):
        assert not log[f"/round/{what}"].any()
    assert log["/prototypes/present"].all()
    assert not np.isnan(log["/client/accuracy_global"]).any()
    alone = run("local")
    assert (log["/round/loss"] > alone["/round/loss"]).all(), "cross-entropy and guide, from the first round"


def test_settled_prototypes_do_not_travel_between_processes_again(run, monkeypatch):
    """Prototypes that follow every round are broadcast every round, settled ones once."""
    sent: list[int] = []
    original = Server.pop_message

    def counting(server):
        message = original(server)
        sent.append(message.nbytes - server.ctx.costs.header_bytes)
        return message

    monkeypatch.setattr(Server, "pop_message", counting)
    rows = 8 + 8 + 6 * 8 * 4
    run("simplex", "federation.participation=1.0")
    assert sent == [0, *[rows] * 4]
    sent.clear()
    run("anchor")
    assert sent == [0, rows, 0, 0, 0]
    sent.clear()
    run("anchor-fixed")
    assert sent == [rows, 0, 0, 0, 0]


def test_a_server_that_diverges_ends_the_run_and_says_so(hpcfl):
    settings = (
        *SEVEN_PARTICIPANTS,
        "method.name=fedtgp",
        "train.lr=1e5",
        "method.weight=0.0",
        "train.batch_size=100000",
    )
    done = hpcfl("train", "--out", "run.h5", *options(*settings))
    assert done.exit_code == 1
    assert "the server's training diverged in round 1 of 4; lower train.lr" in done.output
    log = read_log("run.h5")
    assert (log.status, log.rounds_done) == ("diverged", 1)
    assert np.isfinite(log["/prototypes/global"]).all()


@pytest.mark.parametrize("name", PROTOTYPE_METHODS)
def test_what_is_measured_on_prototypes(run, name):
    log = run(name, *OWN.get(name, []))
    margins, largest = log["/prototypes/margin"], log["/prototypes/margin_clients"]
    for raw, normalised in (
        (margins, log["/prototypes/margin_normalised"]),
        (largest, log["/prototypes/margin_clients_normalised"]),
    ):
        known = ~np.isnan(raw).all(1)
        np.testing.assert_allclose(
            normalised[known], raw[known] / np.nanmax(raw[known], axis=1, keepdims=True)
        )
    both = np.stack([margins, largest], axis=2)
    np.testing.assert_allclose(
        log["/prototypes/margin_common"], both / np.nanmax(both, axis=(1, 2), keepdims=True)
    )
    assert (np.isfinite(largest).sum(1) >= 2).all(), "clients have margins, whatever travels"
    if name == "local":
        assert np.isnan(margins).all()
        return
    value, present = log["/prototypes/global"][-1].astype(float), log["/prototypes/present"][-1]
    value = value[present]
    apart = np.linalg.norm(value[:, None] - value[None], axis=2)[np.triu_indices(len(value), 1)]
    np.testing.assert_allclose(log["/prototypes/distance"][-1], [apart.min(), apart.mean(), apart.max()])
    unit = value / np.linalg.norm(value, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[np.triu_indices(len(value), 1)]
    want = [cosine.min(), cosine.mean(), cosine.max()]
    np.testing.assert_allclose(log["/prototypes/cosine"][-1], want, atol=1e-12)
    energy = -np.log(np.sqrt(2 - 2 * cosine)).sum()
    assert log["/prototypes/energy"][-1] == pytest.approx(energy)
    bound = log["/prototypes/energy_bound"][-1]
    assert energy >= bound - 1e-5
    share = (np.minimum(value, 0) ** 2).sum(1) / (value**2).sum(1)
    np.testing.assert_allclose(log["/prototypes/unreachable"][-1][present], share, atol=1e-12)
    if name.startswith("simplex"):
        assert energy == pytest.approx(bound, abs=1e-5)
    if name.startswith("anchor"):
        assert not share.any()
        assert np.abs(cosine).max() < 1e-6
    if name == "protonorm":
        assert energy < bound + 0.01
        assert (log["/refine/iterations"] > 0).all()
    learns = PROTOTYPE_METHODS[name].refine in ("tgp", "orthogonal")
    for what, known in (("loss", learns), ("delta", PROTOTYPE_METHODS[name].refine == "tgp")):
        assert (np.isfinite(log[f"/refine/{what}"]) == known).all()
    if name != "fedsap-ssl":  # its classes are dealt evenly: none is absent
        assert log["/prototypes/present"].all() == (learns or PROTOTYPE_METHODS[name].fixed)


def test_the_pooled_silhouette_is_that_of_all_clients_features_in_saved_rounds(run, monkeypatch):
    """A client that diverged has no features; in other rounds it is NaN."""
    original, seen = Worker.evaluate_download, {}
    train = LocalClient.train

    def diverging(self, *arguments, **more):
        losses = train(self, *arguments, **more)
        return losses | {"loss": np.nan} if (self.id, self.round) == (3, 1) else losses

    def watching(worker, t, i):
        original(worker, t, i)
        plan = worker.ctx.plan
        z_ND = worker.ctx.records.record(i)["z"].numpy().astype(float)
        seen[t, i] = z_ND, plan.data.y[plan.clients[i].test]

    monkeypatch.setattr(LocalClient, "train", diverging)
    monkeypatch.setattr(Worker, "evaluate_download", watching)
    log = run("fedproto", "log.prototypes_every=2", "federation.participation=1.0")
    assert np.isnan(log["/round/silhouette_pooled"]).tolist() == [True, False, True, False]
    for t in (1, 3):
        features = [seen[t, i] for i in range(20) if not log["/client/diverged"][t, i]]
        assert len(features) == 19
        z_ND, y_N = (np.concatenate(parts) for parts in zip(*features, strict=True))
        unit_ND = z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True)
        apart_NN = 1 - unit_ND @ unit_ND.T
        np.fill_diagonal(apart_NN, 0)
        scores = []
        for n, y in enumerate(y_N):
            own = apart_NN[n, y_N == y].sum() / ((y_N == y).sum() - 1)
            other = min(apart_NN[n, y_N == k].mean() for k in set(y_N) - {y})
            scores.append((other - own) / max(own, other))
        assert log["/round/silhouette_pooled"][t] == pytest.approx(np.mean(scores))
        assert abs(np.mean(scores) - log["/round/silhouette"][t]) > 0.01, "not the mean over clients"


def test_ppa_drops_the_last_upload_of_a_client_that_diverged(run, monkeypatch):
    """(11) over the last uploads of the clients seen so far, without those that diverged."""
    train = LocalClient.train

    def diverging(self, *arguments, **more):
        losses = train(self, *arguments, **more)
        return losses | {"loss": np.nan} if self.id == 3 and self.round else losses

    monkeypatch.setattr(LocalClient, "train", diverging)
    settings = ("method.aggregate=ppa", "log.local_prototypes=true", "federation.rounds=5")
    log = run("fedproto", *settings, "federation.participation=0.8", "seed=2")
    local_TMKD, who_TM = log["/prototypes/local"].astype(float), log["/round/participants"]
    assert who_TM[0, 3]
    assert log["/client/diverged"][-1].tolist() == [i == 3 for i in range(20)]
    counts_MK = log["/clients/class_counts"]
    last: dict[int, np.ndarray] = {}
    for t in range(5):
        for i in np.flatnonzero(who_TM[t]).tolist():
            last[i] = np.nan_to_num(local_TMKD[t, i])
        if log["/client/diverged"][t, 3]:
            last.pop(3, None)
        sum_KD = sum(last.values()) * 6 / counts_MK.sum() * 20 / len(last)
        has_K = counts_MK[list(last)].any(0)
        np.testing.assert_allclose(log["/prototypes/global"][t][has_K], sum_KD[has_K], rtol=1e-5, atol=1e-6)


def test_random_prototypes_are_sent_in_the_first_round(run):
    log, without = (run("protonorm", *more) for more in (["method.initial=random"], []))
    assert log["/round/bytes_down"][0] == 7 * 6 * 8 * 4
    assert without["/round/bytes_down"][0] == 0
    assert np.isfinite(log["/round/loss_align"]).all()
    assert np.isnan(without["/round/loss_align"][0])
    assert log["/prototypes/present"].all(), "a class that nobody uploads keeps its random prototype"


def test_the_best_so_far(run):
    log = run("fedproto", "federation.rounds=6", "log.evaluate_every=2")
    accuracy, best = log["/round/accuracy"], log["/round/best"]
    assert best[0] == -1
    assert np.isnan(log["/client/best"][0]).all()
    for t in range(1, 6):
        assert best[t] == np.nanargmax(accuracy[: t + 1])
        np.testing.assert_array_equal(
            log["/client/best"][t], np.nanmax(log["/client/accuracy"][: t + 1], axis=0)
        )


def test_local_prototypes_are_kept_on_request(run):
    assert run("fedproto")["/prototypes/local"].shape == (4, 0, 6, 8)
    log = run("fedproto", "log.local_prototypes=true", "method.aggregate=mean")
    local, who = log["/prototypes/local"], log["/round/participants"]
    assert local.shape == (4, 20, 6, 8)
    owned = (log["/clients/class_counts"] > 0) & who[:, :, None]
    np.testing.assert_array_equal(~np.isnan(local).any(3), owned)
    fresh = log["/prototypes/present"] & ~log["/prototypes/stale"]
    for t in range(4):
        means = np.nanmean(local[t][:, fresh[t]], axis=0)
        np.testing.assert_allclose(log["/prototypes/global"][t][fresh[t]], means, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "gamma"),
    [
        ("fedproto", [], 1),
        ("simplex", [], 1),
        ("protonorm", [], 10),
        ("fedtgp", ["method.sparsity=0.5", "method.scale=2.0", "method.server_epochs=1"], 2),
    ],
)
def test_the_largest_margin_among_participants(run, name, settings, gamma):
    """Each participant's own distance from a class to its nearest other one, as sent: the largest."""
    log = run(name, "log.local_prototypes=true", *settings)
    for t, local in enumerate(log["/prototypes/local"].astype(float)):
        want = np.full(6, np.nan)
        for own in local[log["/round/participants"][t]]:
            has = [k for k in range(6) if not np.isnan(own[k]).any()]
            for k in has if len(has) > 1 else ():
                want[k] = np.fmax(want[k], min(np.linalg.norm(own[k] - own[c]) for c in has if c != k))
        np.testing.assert_allclose(log["/prototypes/margin_clients"][t], want / gamma, rtol=1e-6)


def right_by_hand(z_ND, y_N, value_KD, present_K, by_angle: bool) -> int:
    """Returns how many samples have their own class's prototype nearest, sample by sample."""
    right = 0
    for z_D, y in zip(z_ND, y_N, strict=True):
        apart = {}
        for k in np.flatnonzero(present_K):
            length = np.linalg.norm(z_D) * np.linalg.norm(value_KD[k]) or 1.0
            apart[k] = -(z_D @ value_KD[k]) / length if by_angle else np.linalg.norm(z_D - value_KD[k])
        right += min(apart, key=apart.__getitem__) == y
    return right


def test_with_the_cosine_guide_prototypes_are_compared_by_angle(run, monkeypatch):
    """By global and by local prototypes, for every client; by distance other samples would be right."""
    original, seen = Worker.evaluate_download, {}

    def watching(worker, t, i):
        original(worker, t, i)
        plan, records = worker.ctx.plan, worker.ctx.records
        state, target = records.state_blocks(i), class_rows(worker.download, "prototypes")
        own = (
            records.record(i)["z"],
            state["local.value"],
            state["local.present"],
            target.value_KD,
            target.present_K,
        )
        seen[i] = plan.data.y[plan.clients[i].test], *(part.numpy().copy() for part in own)

    monkeypatch.setattr(Worker, "evaluate_download", watching)
    log = run("fedproto", "method.distance=cosine", "method.weight=1.0", "federation.participation=1.0")
    tests_M = log["/clients/test_samples"]
    got = {name: log[f"/client/accuracy_{name}"][-1] * tests_M for name in ("local", "global")}
    want: dict[tuple[str, bool], list[int]] = {}
    for by_angle in (True, False):
        for i in range(20):
            y_N, z_ND, *prototypes = seen[i]
            for name, (value_KD, present_K) in (("local", prototypes[:2]), ("global", prototypes[2:])):
                counted = right_by_hand(z_ND, y_N, value_KD, present_K, by_angle)
                want.setdefault((name, by_angle), []).append(counted)
    for name in got:
        np.testing.assert_allclose(got[name], want[name, True])
        assert np.abs(got[name] - want[name, False]).max() > 0.5


def test_distances_of_every_iteration_are_kept_on_request(run):
    assert run("protonorm")["/refine/distances"].shape == (4, 0, 3)
    log = run("protonorm", "log.distances=true", "method.iterations=40", "log.prototypes_every=2")
    traces, taken = log["/refine/distances"], log["/refine/iterations"][[1, 3]]
    assert traces.shape == (2, 41, 3)
    for trace, n in zip(traces, taken, strict=True):
        assert np.isfinite(trace[: n + 1]).all()
        assert np.isnan(trace[n + 1 :]).all()
        assert trace[n, 0] >= trace[0, 0], "the nearest pair is moved apart"
    np.testing.assert_allclose(traces[-1][taken[-1]], log["/prototypes/distance"][-1], rtol=1e-6)


def test_distances_of_simplex_are_those_of_its_iterations_by_momentum(run):
    """Six classes in four dimensions have no regular simplex: Thomson, then L-BFGS, which is not recorded."""
    everybody = ("federation.participation=1.0", "models.features=4")
    log = run("simplex", "log.distances=true", "method.iterations=40", *everybody)
    kept = np.isfinite(log["/refine/distances"]).all(2).sum(1)
    assert ((kept > 1) & (kept <= log["/refine/iterations"])).all()


def test_a_class_keeps_its_direction_while_nobody_uploads_it(run):
    """Stale classes take part with their last direction: the simplex stays one, and they move little."""
    log = run("simplex", "federation.rounds=8", "federation.participation=2")
    stale, value = log["/prototypes/stale"], log["/prototypes/global"]
    assert stale.any()
    assert not log["/prototypes/present"].all()
    for t, k in np.argwhere(stale):
        assert value[t, k] @ value[t - 1, k] > 0.3
