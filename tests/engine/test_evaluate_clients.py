"""`log.evaluate_clients`: what is evaluated, what the log and its readers make of it."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.config.evaluated import evaluated_clients
from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.federation.sent_features import pooled_samples
from hpcfl.log.summary import summary
from tests.helpers.runs import SMALL, train_log

FEW = "log.evaluate_clients=5"


@pytest.mark.parametrize("method", ["fedproto", "fedavg", "fedgh"])
def test_evaluated_clients_have_the_accuracies_of_a_run_that_evaluates_all(hpcfl, method):
    settings = [*SMALL, f"method.name={method}", "federation.participation=0.4"]
    settings += ["partition.validation_fraction=0.2", "models.list=['mlp_64']"]
    all_, few = train_log(hpcfl, *settings), train_log(hpcfl, *settings, FEW)
    chosen_M = evaluated_clients(few.config)
    assert chosen_M.sum() == 5
    for path in ("/client/accuracy", "/client/accuracy_head", "/client/best", "/client/validation_accuracy"):
        np.testing.assert_array_equal(few[path][:, chosen_M], all_[path][:, chosen_M])
        assert np.isnan(few[path][:, ~chosen_M]).all()
    tests_M = few["/clients/test_samples"][chosen_M]
    accuracy_TM = all_["/client/accuracy"][:, chosen_M]
    np.testing.assert_allclose(few["/round/accuracy"], accuracy_TM @ tests_M / tests_M.sum())
    np.testing.assert_allclose(few["/round/accuracy_mean"], accuracy_TM.mean(1))
    samples_M = few["/clients/validation_samples"][chosen_M]
    validation_TM = np.nan_to_num(all_["/client/validation_accuracy"][:, chosen_M])
    np.testing.assert_allclose(few["/round/validation_accuracy"], validation_TM @ samples_M / samples_M.sum())
    for path in ("/round/loss", "/client/loss", "/round/bytes_up"):
        np.testing.assert_array_equal(few[path], all_[path])

    values = summary(few)
    assert values.accuracy == few["/round/accuracy"][-1]
    head_M = few["/client/accuracy_head"][-1, chosen_M]
    assert values.head == pytest.approx(head_M @ tests_M / tests_M.sum())
    best_M = few["/client/best"][-1, chosen_M]
    assert values.clients_best == pytest.approx(best_M @ tests_M / tests_M.sum())


def test_the_sample_depends_on_the_seed_alone():
    def chosen(*settings):
        return evaluated_clients(load_config(None, [*SMALL, FEW, *settings])).tolist()

    assert chosen() == chosen("method.name=fedavg", "models.group=mlp_64", "federation.rounds=9")
    assert chosen() != chosen("seed=1")
    assert sum(evaluated_clients(load_config(None, SMALL))) == 20


def test_pooled_features_are_those_of_evaluated_clients():
    plan = plan_run(load_config(None, [*SMALL, FEW]))
    last = plan.config.federation.rounds - 1
    for client, samples in zip(plan.clients, pooled_samples(plan, last), strict=True):
        wanted = np.arange(len(client.test) * int(plan.evaluated_M[client.id]))
        np.testing.assert_array_equal(samples, wanted)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["log.evaluate_clients=21"], "log.evaluate_clients = 21: more than federation.clients = 20"),
        ([FEW, "log.features_at=[2]"], "log.features_at: needs test features of all clients"),
    ],
)
def test_bad_input(hpcfl, settings, says):
    done = hpcfl("train", *(word for setting in settings for word in ("--set", setting)))
    assert done.exit_code == 2
    assert says in done.output
