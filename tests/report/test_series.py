"""Which runs are averaged, and what tells the others apart."""

from __future__ import annotations

import numpy as np

from hpcfl.report.series import make_settings
from tests.helpers.records import record

HEAD = {"head": (0.5, 0.5)}


def names(*records):
    return [
        [(each.label, len(each.records)) for each in setting.series] for setting in make_settings(records)
    ]


def test_seeds_are_averaged_and_methods_are_not():
    runs = [record(method, HEAD, f"seed={seed}") for method in ("local", "fedproto") for seed in (0, 1)]
    assert names(*runs) == [[("local", 2), ("fedproto", 2)]]


def test_options_of_one_method_are_in_its_label():
    found = names(
        record("fedproto", HEAD), record("fedproto", HEAD, "method.weight=1.0"), record("local", HEAD)
    )
    assert found == [[("fedproto, weight default", 1), ("fedproto, weight 1.0", 1), ("local", 1)]]


def test_settings_are_named_by_what_they_differ_in():
    runs = [record("fedproto", HEAD, f"federation.clients={n}") for n in (20, 40)]
    assert [setting.name for setting in make_settings(runs)] == ["clients 20", "clients 40"]
    assert make_settings(runs)[0].series[0].name == "fedproto, clients 20"


def test_the_same_run_twice_is_not_averaged():
    assert names(record("fedproto", HEAD), record("fedproto", HEAD)) == [
        [("fedproto (fedproto)", 1), ("fedproto (fedproto)", 1)]
    ]


def test_curves_of_shorter_runs_end_in_nan():
    [setting] = make_settings(
        [record("local", HEAD, rounds=(0.1, 0.2, 0.3)), record("local", HEAD, "seed=1", rounds=(0.5,))]
    )
    curves = setting.series[0].curves("/round/accuracy")
    np.testing.assert_array_equal(curves, [[0.1, 0.2, 0.3], [0.5, np.nan, np.nan]])
