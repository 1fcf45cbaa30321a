"""Accuracy on training samples and saved test features, against those computed from the clients at hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hpcfl.config.loading import load_config
from hpcfl.engine.evaluator import Evaluator
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.size import expected_log_size
from tests.helpers.runs import SMALL, train_log

SETTINGS = [
    *(*SMALL, "federation.participation=5", "log.evaluate_every=3", "method.aggregate=mean"),
    *("log.train_accuracy=true", "log.features_at=[2, 3]", "log.features_per_class=7"),
]


@pytest.fixture
def seen(monkeypatch):
    """By round and client: correct training predictions by head and by global prototypes, test features."""
    seen = {}
    original = Evaluator.evaluate_download

    def evaluate_download(self, client, record, diverged, download):
        z_ND = original(self, client, record, diverged, download)
        samples = client.samples("train")
        x_NI, y_N = samples.batch(np.arange(len(samples)))
        client.network.eval()
        with torch.no_grad():
            trained_ND = client.network.extractor(x_NI)
            head = (client.network.head(trained_ND).argmax(1) == y_N).sum().item()
        targets = download["prototypes"]
        near = 0
        for z_D, y in zip(trained_ND, y_N, strict=True):
            distances = [
                (z_D - c_D).norm().item() if there else np.inf
                for c_D, there in zip(targets.value_KD, targets.present_K, strict=True)
            ]
            near += int(np.argmin(distances)) == y
        seen[client.round, client.id] = head, int(near), z_ND.clone()
        return z_ND

    monkeypatch.setattr(Evaluator, "evaluate_download", evaluate_download)
    return seen


def test_training_accuracies_and_saved_features(hpcfl, seen):
    run = train_log(hpcfl, *SETTINGS)
    samples_M = run["/clients/train_samples"]
    evaluated = [1, 2, 3]  # round 2 because its features are saved, round 4 as the last
    assert np.flatnonzero(~np.isnan(run["/round/accuracy"])).tolist() == evaluated
    assert sorted({t for t, _ in seen}) == evaluated
    for t in evaluated:
        correct_M2 = np.array([seen[t, i][:2] for i in range(20)])
        for name, correct_M in zip(("head", "global"), correct_M2.T, strict=True):
            np.testing.assert_allclose(run[f"/client/train_accuracy_{name}"][t], correct_M / samples_M)
            want = correct_M.sum() / samples_M.sum()
            np.testing.assert_allclose(run[f"/round/train_accuracy_{name}"][t], want)
    assert np.isnan(run["/client/train_accuracy_head"][0]).all()
    plan = plan_run(load_config(None, SETTINGS))
    client_S, index_S, z_TSD = (run[f"/features/{name}"] for name in ("client", "index", "test"))
    assert run["/features/round"].tolist() == [1, 2]
    np.testing.assert_array_equal(run["/features/label"], plan.data.y[index_S])
    counts_K = np.bincount(plan.data.y[np.concatenate([client.test for client in plan.clients])])
    np.testing.assert_array_equal(np.bincount(run["/features/label"]), np.minimum(counts_K, 7))
    for t, z_SD in zip((1, 2), z_TSD, strict=True):
        for client, index, z_D in zip(client_S, index_S, z_SD, strict=True):
            (place,) = np.flatnonzero(plan.clients[client].test == index)
            np.testing.assert_array_equal(z_D, seen[t, client][2][place])


def test_saved_features_are_in_the_expected_size_of_the_log():
    sizes = [
        expected_log_size(
            plan_run(load_config(None, [*SMALL, "log.features_per_class=7", f"log.features_at={at}"]))
        )
        for at in ("[1]", "[1, 4]", "[1, 4, 9]")  # there is no round 9
    ]
    assert sizes[1] - sizes[0] == pytest.approx(4 * 6 * 7 * 8, abs=20)  # bytes × classes × samples × d
    assert sizes[2] - sizes[1] < 20


def test_clients_that_diverged_have_no_features_and_nothing_right(hpcfl):
    settings = ["train.lr=1e30", "federation.clients=3", "federation.participation=1", "partition.alpha=10.0"]
    run = train_log(hpcfl, *SMALL, *settings, "log.train_accuracy=true", "log.features_at=[1]")
    gone_M = run["/client/diverged"][0]
    assert gone_M.sum() == 1
    np.testing.assert_array_equal(np.isnan(run["/features/test"][0]).all(1), gone_M[run["/features/client"]])
    assert (run["/client/train_accuracy_head"][0][gone_M] == 0).all()
    assert np.isnan(run["/client/train_accuracy"][0]).all()
