"""Which test samples' features are sent to rank 0, and that they arrive in the order of clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpcfl.config.loading import load_config
from hpcfl.federation import sent_features
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.federation.sent_features import pooled_samples, sent_samples


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    settings = ["data.samples_per_class=40", "federation.clients=4", "partition.alpha=1.0"]
    return plan_run(load_config(None, [*settings, "log.prototypes_every=2", "log.evaluate_every=2"]))


def test_few_samples_are_all_pooled_and_only_in_saved_rounds(plan):
    for client, sample_R in zip(plan.clients, pooled_samples(plan, 1), strict=True):
        assert sample_R.tolist() == list(range(len(client.test)))
    assert not any(map(len, pooled_samples(plan, 0)))


def test_a_sample_is_keyed_by_round_and_drawn_from_all_clients(plan, monkeypatch):
    monkeypatch.setattr(sent_features, "POOLED_SAMPLES", 20)
    draws = [pooled_samples(plan, t) for t in range(1, 24, 2)]
    assert len({str(draw) for draw in draws}) == len(draws)
    for draw in draws:
        assert sum(map(len, draw)) == 20
        for client, sample_R in zip(plan.clients, draw, strict=True):
            assert (np.diff(sample_R) > 0).all()
            assert set(sample_R.tolist()) <= set(range(len(client.test)))
    assert str(pooled_samples(plan, 3)) == str(pooled_samples(plan, 3))


def test_samples_that_several_ask_for_are_sent_once(plan, monkeypatch):
    plan = replace(plan, config=load_config(None, ["federation.clients=4", "log.features_at=[1]"]))

    def first(plan, t):
        return tuple(np.arange(2) for _ in plan.clients)

    def second(plan, t):
        return tuple(np.array([1, 3]) for _ in plan.clients)

    monkeypatch.setattr(sent_features, "pooled_samples", first)
    monkeypatch.setattr(sent_features, "saved_features", second)
    assert [part.tolist() for part in sent_samples(plan, 0)] == [[0, 1, 3]] * 4
