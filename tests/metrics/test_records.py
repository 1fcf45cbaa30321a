"""Values of clients: their records on a rank, and their reduction on rank 0; numbers derived by hand."""

import numpy as np
import pytest

from hpcfl.metrics.metric import declare, evaluated, trained
from hpcfl.metrics.records import MetricsGatherer, RankMetrics, record_dtype

SIZES = {"class": 2}
METRICS = (
    declare("/client/loss", "round client", "f8", "by client", trained("loss")),
    declare("/round/loss", "round", "f8", "over samples", trained("loss", "sample mean")),
    declare("/round/dead", "round class", "f8", "over clients", trained("dead", "mean")),
    declare("/round/margin", "round class", "f8", "largest", trained("margin", "max")),
    declare("/client/norms", "saved client class", "f8", "last known", trained("norms", "latest")),
    declare("/client/number", "round client", "i8", "a count", trained("number")),
    declare("/round/number", "round", "i8", "its sum", trained("number", "sum")),
    declare("/round/score", "round", "f8", "of evaluated clients", evaluated("score", "mean")),
    declare("/round/bytes", "round", "i8", "rank 0's own"),
)
SAMPLES = np.array([4, 6, 2])
NAN = np.nan


def gather(gatherer: MetricsGatherer, *ranks: dict[int, dict[str, object]]) -> dict:
    """Returns the row that follows from the values of each rank, by client and name."""
    messages = []
    for values in ranks:
        metrics = RankMetrics(METRICS, SIZES)
        for client, measured in values.items():
            for name, value in measured.items():
                metrics.of(client)[name] = value
        messages.append(metrics.pop())
    return gatherer.reduce(gatherer.decode(messages)[0])


def test_a_round_by_hand():
    gatherer = MetricsGatherer(METRICS, SIZES, SAMPLES)
    first = {
        "trained": True,
        "loss": 2.0,
        "dead": [0.25, NAN],
        "margin": [1, NAN],
        "norms": [3, 1],
        "number": 4,
    }
    second = {"trained": True, "loss": 1.0, "dead": [0.75, 0.5], "margin": [2, 5], "number": 2}
    score = {"evaluated": True, "score": 0.4}
    row = gather(gatherer, {}, {1: first | score}, {2: {"evaluated": True, "score": 0.2}, 0: second})
    np.testing.assert_array_equal(row["/client/loss"], [1, 2, NAN])
    assert row["/round/loss"] == (4 * 1.0 + 6 * 2.0) / 10
    assert row["/round/dead"].tolist() == [0.5, 0.5]
    assert row["/round/margin"].tolist() == [2, 5]
    np.testing.assert_array_equal(row["/client/norms"], [[NAN, NAN], [3, 1], [NAN, NAN]])
    assert row["/client/number"].tolist() == [2, 4, 0]
    assert row["/client/number"].dtype == np.int64
    assert row["/round/number"] == 6
    np.testing.assert_allclose(row["/round/score"], 0.3)
    assert "/round/bytes" not in row


def test_latest_values_stay_and_what_was_not_measured_is_missing():
    gatherer = MetricsGatherer(METRICS, SIZES, SAMPLES)
    gather(gatherer, {1: {"trained": True, "norms": [1, 3]}})
    row = gather(gatherer, {0: {"trained": True, "loss": NAN}}, {1: {"evaluated": True, "loss": 5.0}})
    np.testing.assert_array_equal(row["/client/norms"][1], [1, 3])
    assert np.isnan(row["/round/loss"]), "a value of a phase that a client was not in does not count"
    assert np.isnan(row["/round/dead"]).all()
    assert np.isnan(row["/round/margin"]).all()
    assert row["/round/number"] == 0


def test_training_and_evaluation_of_a_client_may_be_on_different_ranks():
    gatherer = MetricsGatherer(METRICS, SIZES, SAMPLES)
    row = gather(gatherer, {0: {"evaluated": True, "score": 0.5}}, {0: {"trained": True, "loss": 1.0}})
    assert (row["/round/score"], row["/round/loss"]) == (0.5, 1.0)


def test_reductions_do_not_depend_on_ranks():
    rng = np.random.default_rng(0)
    values = {
        i: {
            "trained": True,
            "evaluated": True,
            "loss": rng.random(),
            "score": rng.random(),
            "dead": rng.random(2),
        }
        for i in range(3)
    }
    one = gather(MetricsGatherer(METRICS, SIZES, SAMPLES), values)
    split = {2: values[2]}, {1: values[1], 0: values[0]}
    other = gather(MetricsGatherer(METRICS, SIZES, SAMPLES), *split)
    for path, value in one.items():
        np.testing.assert_array_equal(value, other[path])


@pytest.mark.parametrize(
    ("dims", "dtype", "reduction"),
    [
        ("round", "f8", "each"),
        ("round client", "f8", "mean"),
        ("round", "i8", "mean"),
        ("saved client", "i8", "latest"),
        ("round class", "f8", "sample mean"),
    ],
)
def test_a_declaration_that_cannot_be_logged_is_refused(dims, dtype, reduction):
    with pytest.raises(ValueError, match="/group/name: "):
        declare("/group/name", dims, dtype, "", trained("value", reduction))


def test_a_value_has_one_shape_and_a_name_that_is_declared():
    twice = (*METRICS, declare("/round/loss_K", "round class", "f8", "", trained("loss", "mean")))
    with pytest.raises(ValueError, match="/round/loss_K: the value loss is declared with another shape"):
        record_dtype(twice, SIZES)
    with pytest.raises((KeyError, ValueError)):
        RankMetrics(METRICS, SIZES).of(0)["undeclared"] = 1.0
