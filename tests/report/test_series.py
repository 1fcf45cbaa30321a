"""Which runs are averaged, and what tells the others apart."""

from __future__ import annotations

from dataclasses import replace

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


def test_keys_without_effect_name_no_setting():
    """α is Dirichlet's, the shots are those of nway_kshot, and a dataset in a file has its own size."""
    runs = [
        record("local", HEAD),
        record("local", HEAD, "partition.name=nway_kshot", "partition.shots=20", "partition.alpha=0.5"),
        record("local", HEAD, "data.name=mine", "models.list=['cnn1', 'cnn2']"),
    ]
    assert [setting.name for setting in make_settings(runs)] == [
        *("spiral, dirichlet, alpha 0.1, list default", "spiral, nway_kshot, shots 20.0, list default"),
        "mine, dirichlet, alpha 0.1, list cnn1+cnn2",
    ]


def test_the_same_run_twice_is_not_averaged():
    assert names(record("fedproto", HEAD), record("fedproto", HEAD)) == [
        [("fedproto (fedproto)", 1), ("fedproto (fedproto)", 1)]
    ]


def test_blocks_of_a_study_are_named_first_and_by_what_varies_in_them():
    """What only another block sets is not in the name."""
    runs = [
        replace(record("fedproto", HEAD, f"federation.clients={n}", f"federation.rounds={t}"), block=block)
        for n, t, block in ((20, 3, "clients"), (40, 3, "clients"), (20, 5, "strong"))
    ]
    names = [setting.name for setting in make_settings(runs)]
    assert names == ["clients, clients 20", "clients, clients 40", "strong"]
