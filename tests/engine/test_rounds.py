"""Whole runs in one process: what the log says against what must be."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import torch

from hpcfl.config.loading import load_config
from hpcfl.federation.participants import select_participants
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.reader import read_log
from hpcfl.log.schema import BASE_METRICS
from hpcfl.methods import aggregate
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS
from hpcfl.models.network import build_network
from hpcfl.training import local_client
from hpcfl.utils.seeds import generator, key
from tests.helpers.runs import SMALL, options, train_log


@pytest.fixture
def run(hpcfl):
    """Returns `run(*settings, code=0)`: trains and reads the log."""
    return lambda *settings, code=0: train_log(hpcfl, *SMALL, *settings, code=code)


@pytest.mark.parametrize("share", ["1.0", "0.3", "7", "1"])
def test_bytes_are_the_papers_formula(run, share):
    """Up Σ K_i·d·4 over participants; down |participants|·K·d·4 with K the classes the server has by then."""
    log = run(f"federation.participation={share}", "method.aggregate=mean")
    plan = plan_run(load_config(None, [*SMALL, f"federation.participation={share}"]))
    classes_M = (plan.class_counts_MK > 0).sum(1)
    known_K = np.zeros(6, dtype=bool)
    for t in range(4):
        chosen = select_participants(0, t, 20, plan.config.federation.per_round)
        assert np.flatnonzero(log["/round/participants"][t]).tolist() == chosen.tolist()
        assert log["/round/bytes_up"][t] == classes_M[chosen].sum() * 8 * 4
        assert log["/round/bytes_down"][t] == len(chosen) * known_K.sum() * 8 * 4
        assert log["/round/bytes_side"][t] == len(chosen) * (1 + bool(known_K.any()))
        assert log["/round/uploads"][t] == len(chosen)
        fresh_K = (plan.class_counts_MK[chosen] > 0).any(0)
        known_K |= fresh_K
        np.testing.assert_array_equal(log["/prototypes/present"][t], known_K)
        np.testing.assert_array_equal(log["/prototypes/stale"][t], known_K & ~fresh_K)


def test_sample_counts_cost_four_bytes_a_row_where_they_travel(run):
    log = run("method.aggregate=weighted")
    rows = (log["/clients/class_counts"] > 0).sum()
    assert log["/round/bytes_side"].tolist() == [20 + 4 * rows] + [40 + 4 * rows] * 3


def test_local_sends_nothing_and_has_no_global_accuracy(run):
    log = run("method.name=local")
    for name in ("bytes_up", "bytes_down", "bytes_side", "uploads"):
        assert not log[f"/round/{name}"].any()
    assert np.isnan(log["/client/accuracy_global"]).all()
    np.testing.assert_array_equal(log["/client/accuracy"], log["/client/accuracy_head"])
    assert not log["/prototypes/present"].any()


def test_accuracies_are_over_samples_and_over_clients(run):
    log = run()
    tests_M = log["/clients/test_samples"]
    right_M = log["/client/accuracy_global"] * tests_M
    np.testing.assert_allclose(right_M, np.rint(right_M), atol=1e-9)
    np.testing.assert_allclose(log["/round/accuracy"], right_M.sum(1) / tests_M.sum())
    np.testing.assert_allclose(log["/round/accuracy_mean"], log["/client/accuracy_global"].mean(1))
    samples_M = log["/clients/train_samples"]
    np.testing.assert_allclose(log["/round/loss"], (log["/client/loss"] * samples_M).sum(1) / samples_M.sum())
    np.testing.assert_array_equal(log["/clients/class_counts"].sum(1), samples_M)


@pytest.mark.parametrize("infer", ["head", "global", "local"])
def test_the_method_says_which_accuracy_is_the_accuracy(run, infer):
    log = run(f"method.infer={infer}")
    np.testing.assert_array_equal(log["/client/accuracy"], log[f"/client/accuracy_{infer}"])


def test_evaluation_and_saved_prototypes_follow_their_periods_and_the_last_round(run):
    log = run("log.evaluate_every=3", "log.prototypes_every=2", "federation.rounds=5")
    assert np.flatnonzero(~np.isnan(log["/round/accuracy"])).tolist() == [2, 4]
    assert log["/prototypes/saved_round"].tolist() == [1, 3, 4]
    assert log["/prototypes/global"].shape == (3, 6, 8)
    assert not np.isnan(log["/round/loss"]).any()


def test_evaluating_less_often_changes_no_result(run, hpcfl):
    often = run("federation.participation=0.4")
    rarely = (*SMALL, "federation.participation=0.4", "log.evaluate_every=4")
    hpcfl("train", "--out", "rare.h5", *options(*rarely))
    rare = read_log("rare.h5")
    for path in ("/client/accuracy_head", "/client/accuracy_global", "/client/accuracy_local"):
        np.testing.assert_array_equal(often[path][3], rare[path][3])
    np.testing.assert_array_equal(often["/client/loss"], rare["/client/loss"])


def test_all_clients_are_evaluated_with_the_prototypes_of_their_own_round(run):
    """One client trains in round 1; everybody is compared with what it uploaded, and has no local ones."""
    log = run("federation.participation=1", "federation.rounds=1")
    (trained,) = select_participants(0, 0, 20, 1)
    assert not np.isnan(log["/client/accuracy_global"]).any()
    assert not np.isnan(log["/client/accuracy_head"]).any()
    assert np.flatnonzero(~np.isnan(log["/client/accuracy_local"][0])).tolist() == [trained]
    assert np.flatnonzero(log["/client/rank"][0] >= 0).tolist() == [trained]
    np.testing.assert_allclose(log["/round/accuracy_mean"], log["/client/accuracy_global"].mean())


def test_own_classes_never_hurt_when_test_classes_are_own(run, hpcfl):
    every = run()
    hpcfl("train", "--out", "own.h5", *options(*SMALL, "method.own_classes=true"))
    own = read_log("own.h5")
    assert (own["/client/accuracy_global"] >= every["/client/accuracy_global"]).all()
    assert (own["/client/accuracy_global"] > every["/client/accuracy_global"]).any()


def test_clients_of_one_architecture_start_apart_unless_asked(hpcfl):
    """Nothing is learned at this rate: with equal networks the prototypes of IID clients all but agree, and
    comparing with local or global ones is the same; with different networks it is not."""
    agree = {}
    for same in ("false", "true"):
        settings = (*SMALL, f"models.same_start={same}", "models.list=['mlp_64']", "partition.name=iid")
        more = ("train.lr=1e-30", "federation.rounds=1", "data.samples_per_class=2000")
        hpcfl("train", "--out", f"{same}.h5", *options(*settings, *more))
        log = read_log(f"{same}.h5")
        agree[same] = np.abs(log["/client/accuracy_global"] - log["/client/accuracy_local"]).mean()
    assert agree["true"] < 0.05 < 0.2 < agree["false"]


def test_a_diverged_client_stays_out_and_the_run_goes_on(run, monkeypatch):
    """Client 3's samples are made infinite: it never uploads, the others do, nothing else changes."""
    original = local_client.train_epochs

    trainings = 0

    def poisoned(network, samples, *rest):
        nonlocal trainings
        if samples.index_N[0] == first:
            trainings += 1
            source = copy(samples.source)
            source.x = source.x.clone()
            source.x[samples.index_N] = float("inf")
            samples = replace(samples, source=source)
        return original(network, samples, *rest)

    first = int(plan_run(load_config(None, SMALL)).clients[3].train[0])
    monkeypatch.setattr(local_client, "train_epochs", poisoned)
    log = run()
    assert trainings == 1, "a diverged client was trained again"
    diverged = np.zeros((4, 20), dtype=bool)
    diverged[:, 3] = True
    np.testing.assert_array_equal(log["/client/diverged"], diverged)
    assert log["/round/uploads"].tolist() == [19] * 4
    assert np.isfinite(log["/prototypes/global"]).all()
    assert np.isfinite(log["/round/loss"]).all()
    assert not log["/client/accuracy"][:, 3].any()
    assert log.status == "finished"
    classes_M = (log["/clients/class_counts"] > 0).sum(1)
    assert (log["/round/bytes_up"] == (classes_M.sum() - classes_M[3]) * 8 * 4).all()


def test_if_every_client_diverges_the_run_ends_with_code_1_and_a_complete_log(run):
    log = run("train.lr=1e30", code=1)
    assert log.status == "diverged"
    assert log.rounds_done == len(log["/round/accuracy"]) < 4
    assert log["/client/diverged"][-1].all()
    assert log["/round/accuracy"][-1] == 0
    assert log.attributes["end"]


def test_the_log_says_which_libraries_made_its_numbers(run):
    attributes = run("federation.rounds=1").attributes
    for name in ("hpcfl", "torch", "numpy", "scipy", "h5py", "mpi4py"):
        assert attributes[f"version_{name}"] == version(name)


@pytest.mark.parametrize(("setting", "threads"), [("2", 2), (None, 1)])
def test_the_server_has_its_own_number_of_threads(run, monkeypatch, setting, threads):
    """Only while it aggregates; without the key it has the threads of every rank."""
    seen, mean = set(), aggregate.mean

    def count_threads(uploads):
        seen.add(torch.get_num_threads())
        return mean(uploads)

    monkeypatch.setattr(aggregate, "mean", count_threads)
    log = run("method.aggregate=mean", *([f"runtime.server_threads={setting}"] if setting else []))
    assert (seen, torch.get_num_threads()) == ({threads}, 1)
    assert log.config.runtime.server_threads == (threads if setting else None)


def test_with_partial_participation_divergence_of_all_takes_several_rounds(run):
    """Half of the clients per round: prototypes stay, bytes are 0, until the last client has diverged."""
    log = run("train.lr=1e30", "federation.participation=0.5", "federation.rounds=30", code=1)
    assert log.rounds_done > 1
    assert not log["/round/bytes_up"].any()
    assert not log["/round/uploads"].any()
    assert log["/client/diverged"].sum(1).tolist() == sorted(log["/client/diverged"].sum(1))
    assert log["/client/diverged"][-1].all()


def test_another_seed_is_another_start_and_other_participants(hpcfl):
    """Nothing is learned at this rate, so prototypes differ by the starting parameters alone."""
    logs = []
    for seed in (0, 1):
        settings = (*SMALL, "train.lr=1e-30", "federation.participation=3", f"seed={seed}")
        hpcfl("train", "--out", f"{seed}.h5", *options(*settings))
        logs.append(read_log(f"{seed}.h5"))
    for path in ("/prototypes/global", "/round/participants"):
        assert not np.array_equal(logs[0][path], logs[1][path])


@pytest.mark.parametrize("prototypes", ["eval", "running"])
def test_one_client_by_hand(run, prototypes):
    """Two rounds of one client, written out: keyed start and shuffles, γ = 3, all three accuracies."""
    settings = ["federation.clients=1", "federation.rounds=2", "method.scale=3.0", "method.weight=2.0"]
    settings += [f"method.prototypes={prototypes}", "log.prototypes_every=1", "partition.name=iid"]
    log = run(*settings)
    plan = plan_run(load_config(None, [*SMALL, *settings]))
    x, y = torch.from_numpy(plan.data.x), torch.from_numpy(plan.data.y)
    train, test = torch.from_numpy(plan.clients[0].train), torch.from_numpy(plan.clients[0].test)
    torch.manual_seed(key(0, "start", 0))
    net = build_network("mlp_64", (2,), 6, 8)
    target, losses = None, []
    for t in range(2):
        total, met = 0.0, []
        order = torch.from_numpy(generator(0, "shuffle", 0, t, 0).permutation(len(train)))
        for rows in train[order].split(32):
            z = net.extractor(x[rows])
            loss = torch.nn.functional.cross_entropy(net.head(z), y[rows])
            if target is not None:
                loss = loss + 2 * ((z - target[y[rows]]) ** 2).mean()
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.sub_(parameter.grad, alpha=0.01)  # type: ignore[arg-type]
            total += loss.item() * len(rows)
            met += list(zip(z.detach(), y[rows].tolist(), strict=True))
        losses.append(total / len(train))
        with torch.no_grad():
            if prototypes == "eval":
                met = list(zip(net.extractor(x[train]), y[train].tolist(), strict=True))
            means = torch.stack(
                [torch.stack([z for z, label in met if label == k]).mean(0) for k in range(6)]
            )
            target = 3 * means
            z = net.extractor(x[test])
            by = {"head": net.head(z).argmax(1), "global": torch.cdist(z, target).argmin(1)}
            by["local"] = torch.cdist(z, means).argmin(1)
        np.testing.assert_allclose(log["/prototypes/global"][t], means.numpy(), rtol=1e-3, atol=1e-5)
        for name, predicted in by.items():
            want = (predicted == y[test]).double().mean().item()
            assert log[f"/client/accuracy_{name}"][t, 0] == pytest.approx(want, abs=0.01)
    np.testing.assert_allclose(log["/client/loss"][:, 0], losses, rtol=1e-4)


def test_prototypes_of_an_early_end_are_saved(run):
    log = run("train.lr=1e30", "log.prototypes_every=100", code=1)
    assert log["/prototypes/saved_round"].tolist() == [log.rounds_done - 1]


def test_seconds_have_parts_and_every_entry_of_the_schema_is_filled(run):
    log = run()
    parts = sum(log[f"/round/seconds_{part}"] for part in ("train", "comm", "refine", "evaluate", "log"))
    assert (parts <= log["/round/seconds"]).all()
    assert (log["/round/seconds_train"] > 0).all()
    work = log["/round/efficiency"] * log["/round/seconds"]  # one worker
    assert (work <= log["/round/cpu_seconds"] + 1e-3).all()
    assert (work > 0.05 * log["/round/seconds_train"]).all()
    for metric in (*BASE_METRICS, *PROTOTYPE_METRICS):
        assert len(log[metric.path]) > 0


@pytest.mark.slow
def test_exchange_helps_against_local(hpcfl):
    """The quick start's point, at full size: FedProto's accuracy is above that of training alone."""
    for method in ("fedproto", "local"):
        assert hpcfl("train", f"--set=method.name={method}", "--out", f"{method}.h5").exit_code == 0
    exchange, alone = (read_log(f"{method}.h5")["/round/accuracy"][-1] for method in ("fedproto", "local"))
    assert exchange > alone + 0.01
