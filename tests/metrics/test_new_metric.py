"""A new metric by client takes one declaration, and one line where it is measured."""

from __future__ import annotations

import numpy as np

from hpcfl.algorithms.prototype_algorithm import PrototypeAlgorithm
from hpcfl.log import schema
from hpcfl.log.reader import read_log
from hpcfl.metrics.metric import declare, trained
from tests.helpers.runs import SMALL, assert_equal_runs, options

NEW = (
    declare("/client/samples_seen", "round client", "f8", "training samples", trained("samples_seen")),
    declare("/client/last_round", "saved client", "f8", "its last round", trained("last_round", "latest")),
)


def test_a_declared_metric_is_sent_gathered_logged_and_exported(hpcfl, monkeypatch):
    original = PrototypeAlgorithm.train

    def train(self, client, download):
        client.metrics["samples_seen"] = len(client.samples())  # the one line
        client.metrics["last_round"] = client.round
        return original(self, client, download)

    monkeypatch.setattr(schema, "BASE_METRICS", (*schema.BASE_METRICS, *NEW))  # the one declaration
    monkeypatch.setattr(PrototypeAlgorithm, "train", train)
    done = hpcfl("train", "--out", "run.h5", *options(*SMALL, "federation.participation=5"))
    assert done.exit_code == 0, done.output
    run = read_log("run.h5")
    want = np.where(run["/round/participants"], run["/clients/train_samples"], np.nan)
    np.testing.assert_array_equal(run["/client/samples_seen"], want)
    assert run.metrics["/client/samples_seen"].about == "training samples"
    assert "samples_seen" in run.frame("clients").columns
    done_in = np.where(run["/round/participants"], np.arange(4)[:, None], np.nan)
    np.testing.assert_array_equal(run["/client/last_round"][-1], np.fmax.reduce(done_in))


def test_what_is_kept_across_rounds_is_kept_across_restarts(hpcfl, monkeypatch):
    original = PrototypeAlgorithm.train

    def train(self, client, download):
        client.metrics["last_round"] = client.round
        return original(self, client, download)

    monkeypatch.setattr(schema, "BASE_METRICS", (*schema.BASE_METRICS, NEW[1]))
    monkeypatch.setattr(PrototypeAlgorithm, "train", train)
    settings = options(*SMALL, "federation.participation=5", "runtime.checkpoint_rounds=1")
    assert hpcfl("train", "--out", "whole.h5", *settings).exit_code == 0
    assert hpcfl("train", "--out", "parts.h5", *settings, "--set=federation.rounds=2").exit_code == 0
    done = hpcfl("train", "--out", "parts.h5", *settings)
    assert "continues after round" in done.output
    assert_equal_runs("parts.h5", "whole.h5")
