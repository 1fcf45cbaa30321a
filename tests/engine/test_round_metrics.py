"""What ranks report, put together by client: numbers derived by hand."""

import numpy as np

from hpcfl.comm.metrics_codec import ClientMetrics, CpuSeconds, encode_metrics
from hpcfl.engine.round_metrics import MetricsCollector

COUNTS = np.array([[2, 2], [6, 0], [1, 1]])


def collect(collector: MetricsCollector, *ranks: list[ClientMetrics]):
    return collector([encode_metrics(CpuSeconds(1.0, 2.0), reports, 2) for reports in ranks])


def test_a_round_by_hand():
    """Losses over samples (4 and 6), dead units and silhouettes over clients; client 2 only looks."""
    first = ClientMetrics(
        1, trained=True, evaluated=True, by_head=3, loss=2.0, align=0.5, seconds=1.0, silhouette=0.4,
        margin_K=np.array([1.0, np.nan]), dead_K=np.array([0.25, np.nan]), norm_K=np.array([3.0, 1.0]),
        accepted=4, accepted_correct=1, thresholds=np.array([0.1, 0.2]),
    )  # fmt: skip
    second = ClientMetrics(
        0, trained=True, loss=1.0, align=1.0, seconds=2.0, margin_K=np.array([2.0, 5.0]),
        dead_K=np.array([0.75, 0.5]), norm_K=np.array([2.0, 2.0]), accepted=2, accepted_correct=2,
    )  # fmt: skip
    third = ClientMetrics(2, evaluated=True, by_head=1, silhouette=0.2)
    collector = MetricsCollector(COUNTS)
    got = collect(collector, [], [first], [third, second])
    row = got.row
    assert row["/round/loss"] == (4 * 1.0 + 6 * 2.0) / 10
    assert row["/round/loss_align"] == (4 * 1.0 + 6 * 0.5) / 10
    assert np.isnan(row["/round/loss_proxy"])
    np.testing.assert_array_equal(row["/client/loss"], [1, 2, np.nan])
    assert row["/client/rank"].tolist() == [2, 1, -1]
    assert row["/prototypes/dead"].tolist() == [0.5, 0.5]
    assert row["/prototypes/margin_clients"].tolist() == [2, 5]
    np.testing.assert_allclose(row["/round/silhouette"], 0.3)
    np.testing.assert_array_equal(row["/client/silhouette"], [np.nan, 0.4, 0.2])
    assert row["/client/accepted"].tolist() == [2, 4, 0]
    np.testing.assert_array_equal(row["/client/pseudo_accuracy"], [1, 0.25, np.nan])
    assert (row["/round/accepted"], row["/round/pseudo_accuracy"]) == (6, 0.5)
    np.testing.assert_array_equal(row["/client/thresholds"][1], [0.1, 0.2])
    np.testing.assert_array_equal(got.correct_M["head"], [np.nan, 3, 1])
    assert (got.evaluated, got.work, got.cpu) == (True, 3.0, 6.0)
    # heads: client 0 has equal norms where its counts are equal, client 1 norms 3, 1 for counts 6, 0
    assert row["/round/personalisation"] == 0
    np.testing.assert_array_equal(collector.norm_MK, [[2, 2], [3, 1], [np.nan, np.nan]])


def test_who_does_not_train_keeps_its_head_and_a_diverged_client_adds_nothing():
    collector = MetricsCollector(COUNTS)
    collect(collector, [ClientMetrics(1, trained=True, loss=1.0, norm_K=np.array([1.0, 3.0]))])
    row = collect(collector, [ClientMetrics(0, trained=True, loss=np.nan)]).row
    np.testing.assert_array_equal(collector.norm_MK[1], [1, 3])
    assert np.isnan(collector.norm_MK[0]).all()
    np.testing.assert_allclose(row["/round/personalisation"], np.sqrt(2))
    assert np.isnan(row["/prototypes/dead"]).all()
    assert np.isnan(row["/round/loss"])


def test_sums_do_not_depend_on_who_trained_whom():
    rng = np.random.default_rng(0)
    reports = [
        ClientMetrics(
            i, trained=True, evaluated=True, loss=rng.random(), silhouette=rng.random(), dead_K=rng.random(2)
        )
        for i in range(3)
    ]
    one, other = (
        collect(MetricsCollector(COUNTS), reports),
        collect(MetricsCollector(COUNTS), [reports[2]], [reports[1], reports[0]]),
    )
    for path, values in one.row.items():
        if path != "/client/rank":
            np.testing.assert_array_equal(values, other.row[path])
