"""Accuracy on validation samples, and the round that it selects."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.config.identity import identity
from hpcfl.config.loading import load_config
from hpcfl.data.split_file import write_split
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.optional_metrics import VALIDATION_METRICS
from hpcfl.log.reader import read_log
from tests.helpers.runs import CHECKPOINTS, SMALL, assert_equal_runs, options, train_log

SETTINGS = [*SMALL, "federation.participation=5"]
METHODS = {
    "nothing": ["method.name=fedproto"],
    "head": ["method.name=tests.helpers.toy_algorithm:Mix", "train.lr=0.1"],
    "network": ["method.name=tests.helpers.toy_algorithm:Toy", "models.list=['mlp_256']", "train.lr=0.1"],
}
"""By what the download changes."""


@pytest.mark.parametrize("changes", METHODS)
def test_validation_accuracy_is_test_accuracy_with_the_parts_exchanged(hpcfl, tmp_path, changes):
    plan = plan_run(load_config(None, [*SMALL, "partition.validation_fraction=0.3"]))
    splits = [client.split for client in plan.clients]
    write_split(tmp_path / "one.npz", [(s.train, s.test, s.unlabelled, s.validation) for s in splits])
    write_split(tmp_path / "other.npz", [(s.train, s.validation, s.unlabelled, s.test) for s in splits])
    one, other = (
        train_log(hpcfl, *SETTINGS, *METHODS[changes], f"partition.file={tmp_path / name}.npz")
        for name in ("one", "other")
    )
    np.testing.assert_array_equal(one["/round/loss"], other["/round/loss"])
    for mine, its in ((one, other), (other, one)):
        np.testing.assert_array_equal(mine["/clients/validation_samples"], its["/clients/test_samples"])
        np.testing.assert_array_equal(mine["/round/validation_accuracy"], its["/round/accuracy"])
        np.testing.assert_array_equal(mine["/round/selected"], its["/round/best"])
        own = [path for path in mine.metrics if path.startswith("/client/validation_accuracy")]
        assert len(own) >= 3
        for path in own:
            np.testing.assert_array_equal(mine[path], its[path.replace("validation_", "")], path)


def test_the_round_of_the_best_validation_accuracy_is_shown(hpcfl):
    run = train_log(hpcfl, *SETTINGS, "partition.validation_fraction=0.3")
    accuracy = run["/round/validation_accuracy"]
    assert run["/round/selected"].tolist() == [int(accuracy[: t + 1].argmax()) for t in range(4)]
    chosen = int(run["/round/selected"][-1])
    test = f"{100 * run['/round/accuracy'][chosen]:.2f}%"
    shown = hpcfl("show", "run.h5").output
    assert f"selects round {chosen + 1} by {100 * accuracy[chosen]:.2f}%; test accuracy there {test}" in shown
    assert "selected" in hpcfl("show", "run.h5", "run.h5").output


def test_without_validation_samples_the_log_and_the_identity_are_as_ever(hpcfl):
    run = train_log(hpcfl, *SETTINGS)
    assert {metric.path for metric in VALIDATION_METRICS} <= run.lacking
    assert np.isnan(run["/round/validation_accuracy"]).all()
    assert "validation" not in hpcfl("show", "run.h5").output
    one, other = (plan_run(load_config(None, [*SMALL, *more])) for more in ([], ["log.features_at=[]"]))
    assert identity(one.config, one.checksums) == identity(other.config, other.checksums)


def test_clients_without_validation_samples_are_left_out(hpcfl):
    few = ["partition.validation_fraction=0.06", "federation.clients=20"]
    run = train_log(hpcfl, *SMALL, *few)
    samples_M = run["/clients/validation_samples"]
    assert (samples_M == 0).any()
    by_client = run["/client/validation_accuracy"][-1]
    np.testing.assert_array_equal(np.isnan(by_client), samples_M == 0)
    assert run["/round/validation_accuracy"][-1] == np.nansum(by_client * samples_M) / samples_M.sum()


def test_a_continued_run_selects_the_same_round_and_saves_the_same_features(hpcfl):
    more = ["partition.validation_fraction=0.3", "log.features_at=[1, 3, 5]", "log.train_accuracy=true"]
    settings = options(*CHECKPOINTS, *more, "log.features_per_class=4")
    assert hpcfl("train", "--out", "whole.h5", *settings).exit_code == 0
    assert hpcfl("train", "--out", "parts.h5", *settings, "--set=federation.rounds=4").exit_code == 0
    done = hpcfl("train", "--out", "parts.h5", *settings)
    assert "continues after round 4" in done.output
    assert_equal_runs("parts.h5", "whole.h5")
    run = read_log("parts.h5")
    assert run["/features/round"].tolist() == [0, 2, 4]
    assert len(run["/features/test"]) == 3
