"""What rank 0 computes from the values of clients: numbers derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.config.loading import load_config
from hpcfl.engine.rank_report import CpuSeconds, RankReport
from hpcfl.engine.round_metrics import RoundMetrics, RoundMetricsBuilder
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.metrics.records import RankMetrics

GLOBAL_MARGIN_K = np.array([8, np.nan, np.nan, 4, 2, 0])


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    """Three clients; the method's inference is by global prototypes."""
    settings = ["data.samples_per_class=20", "federation.clients=3", "partition.name=iid"]
    return plan_run(load_config(None, settings))


def builder_of(plan: RunPlan) -> RoundMetricsBuilder:
    return RoundMetricsBuilder(plan, build_algorithm(plan, torch.device("cpu")))


def build(builder: RoundMetricsBuilder, *ranks: dict[int, dict[str, object]]) -> RoundMetrics:
    """Returns the metrics of a round from the values of each rank, by client and name."""
    messages = []
    for values in ranks:
        metrics = RankMetrics(run_metrics(builder.plan), dimension_sizes(builder.plan))
        for client, measured in values.items():
            for name, value in measured.items():
                metrics.of(client)[name] = value
        messages.append(RankReport(CpuSeconds(1.0, 2.0), [], metrics.pop()).encode())
    return builder.build(0, messages, {"/prototypes/margin": GLOBAL_MARGIN_K})


def test_accuracies_are_over_test_samples_and_over_clients(plan):
    tests_M = np.array([len(client.test) for client in plan.clients])
    correct_M = np.array([5, 0, tests_M[2]])
    values = {
        i: {"evaluated": True, "accuracy_global": correct_M[i] / tests_M[i], "accuracy_head": 0.5}
        for i in (0, 2)
    }
    got = build(builder_of(plan), {}, values, {1: {"evaluated": True, "accuracy_head": 0.5}})
    assert got.row["/round/accuracy"] == correct_M.sum() / tests_M.sum()
    assert got.row["/round/accuracy_mean"] == (correct_M / tests_M).mean()
    np.testing.assert_array_equal(got.row["/client/accuracy"], correct_M / tests_M)
    np.testing.assert_array_equal(got.row["/client/accuracy_global"], [correct_M[0] / tests_M[0], np.nan, 1])
    assert got.cpu == CpuSeconds(3.0, 6.0)


def test_a_round_without_evaluation_has_no_accuracy(plan):
    row = build(builder_of(plan), {0: {"trained": True, "loss": 1.0}}).row
    assert np.isnan(row["/round/accuracy"])
    assert np.isnan(row["/round/accuracy_mean"])
    assert np.isnan(row["/client/accuracy"]).all()


def test_ranks_and_pseudo_labels(plan):
    first: dict[str, object] = {"trained": True, "accepted": 4, "pseudo_accuracy": 0.25}
    second: dict[str, object] = {"trained": True, "accepted": 2, "pseudo_accuracy": 1.0}
    row = build(builder_of(plan), {}, {1: first}, {0: second, 2: {"evaluated": True}}).row
    assert row["/client/rank"].tolist() == [2, 1, -1]
    assert (row["/round/accepted"], row["/round/pseudo_accuracy"]) == (6, 0.5)
    np.testing.assert_array_equal(row["/client/pseudo_accuracy"], [1, 0.25, np.nan])


def test_margins_are_divided_by_the_largest(plan):
    margins = [[1, 2, np.nan, 0, 4, 1], [2, 1, np.nan, 0, 3, 1]]
    values = {i: {"trained": True, "margin": margin} for i, margin in enumerate(margins)}
    row = build(builder_of(plan), values).row
    np.testing.assert_array_equal(row["/prototypes/margin_clients"], [2, 2, np.nan, 0, 4, 1])
    want = [0.5, 0.5, np.nan, 0, 1, 0.25]
    np.testing.assert_array_equal(row["/prototypes/margin_clients_normalised"], want)
    both = np.stack([GLOBAL_MARGIN_K, row["/prototypes/margin_clients"]], axis=1)
    np.testing.assert_array_equal(row["/prototypes/margin_common"], both / 8)


def test_personalisation_is_zero_where_head_norms_follow_class_counts(plan):
    """Heads of clients that did not train in the last round count too."""
    builder = builder_of(plan)
    count_MK = plan.class_counts_MK
    for i in range(3):
        row = build(builder, {i: {"trained": True, "head_norms": 3.0 * count_MK[i] + 1}}).row
    np.testing.assert_allclose(row["/round/personalisation"], 0, atol=1e-12)
    np.testing.assert_array_equal(builder.head_norm_MK, 3.0 * count_MK + 1)
