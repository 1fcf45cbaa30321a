"""A new metric by client takes one declaration, and one line where it is measured."""

from __future__ import annotations

import numpy as np

from hpcfl.log import size
from hpcfl.log.reader import read_log
from hpcfl.metrics.metric import declare, trained
from hpcfl.training.trainer import Trainer
from tests.helpers.runs import SMALL, options

NEW = (declare("/client/samples_seen", "round client", "f8", "training samples", trained("samples_seen")),)


def test_a_declared_metric_is_sent_gathered_logged_and_exported(hpcfl, monkeypatch):
    original = Trainer.train

    def train(self, t, i, network, target, metrics):
        original(self, t, i, network, target, metrics)
        metrics["samples_seen"] = len(self.plan.clients[i].train)  # the one line

    monkeypatch.setattr(size, "BASE_METRICS", (*size.BASE_METRICS, *NEW))  # the one declaration
    monkeypatch.setattr(Trainer, "train", train)
    done = hpcfl("train", "--out", "run.h5", *options(*SMALL, "federation.participation=5"))
    assert done.exit_code == 0, done.output
    run = read_log("run.h5")
    want = np.where(run["/round/participants"], run["/clients/train_samples"], np.nan)
    np.testing.assert_array_equal(run["/client/samples_seen"], want)
    assert run.metrics["/client/samples_seen"].about == "training samples"
    assert "samples_seen" in run.frame("clients").columns
    assert hpcfl("diff", "run.h5", "run.h5").exit_code == 0
