"""The verdict: differences to `local` against numbers derived by hand, and what is not compared."""

from __future__ import annotations

import pytest

from hpcfl.report.page import headline
from hpcfl.report.records import RunRecord
from hpcfl.report.series import make_settings
from hpcfl.report.verdict import Verdict, make_verdict
from hpcfl.report.verdict_text import difference_text, outcome_text
from tests.helpers.records import record
from tests.helpers.runs import SHORT

EUCLID = "distance mse, infer global"
NAN = float("nan")


def verdict(*records: RunRecord) -> Verdict:
    return make_verdict([series for setting in make_settings(records) for series in setting.series])


def test_the_difference_is_weighted_by_test_samples_as_the_accuracy_is():
    """100 and 300 tests: (100·0.9 + 300·0.5)/400 = 0.6 against (100·0.5 + 300·0.7)/400 = 0.65."""
    found = verdict(record("local", {"head": (0.5, 0.7)}), record("fedorgp", {"head": (0.9, 0.5)}))
    [delta] = found.deltas
    assert (delta.accuracy, delta.local, delta.mean) == pytest.approx((0.6, 0.65, -0.05))
    assert (delta.better, delta.worse, delta.pairs) == (1, 1, 2)
    assert delta.interval is None
    assert delta.outcome == "below"
    assert found.warnings == ["fedorgp is below local by head: −5.00 points"]
    assert found.notes == ()


def test_the_interval_over_seeds_is_that_of_student():
    """Differences of 0.01, 0.02, 0.03: mean 0.02, std 0.01, t(2; 97.5%) = 4.302653, half 4.302653·0.01/√3."""
    runs = []
    for seed, gain in enumerate((0.01, 0.02, 0.03)):
        runs.append(record("local", {"head": (0.5, 0.5)}, f"seed={seed}"))
        runs.append(record("fedorgp", {"head": (0.5 + gain, 0.5 + gain)}, f"seed={seed}"))
    [delta] = verdict(*runs).deltas
    assert delta.by_seed == pytest.approx((0.01, 0.02, 0.03))
    half = 4.302653 * 0.01 / 3**0.5
    assert delta.interval == pytest.approx((0.02 - half, 0.02 + half), abs=1e-8)
    assert delta.outcome == "level"
    assert (difference_text(delta), outcome_text(delta)) == (
        "+2.00 [−0.48, +4.48]",
        "unclear, 3 seeds",
    )
    assert headline(verdict(*runs)) == [
        "No clear difference, in points: fedorgp by head +2.00 [−0.48, +4.48]."
    ]


def test_runs_are_paired_by_seed_not_by_order():
    runs = [record("local", {"head": (value, value)}, f"seed={seed}") for seed, value in ((0, 0.2), (1, 0.8))]
    runs += [
        record("fedorgp", {"head": (value, value)}, f"seed={seed}") for seed, value in ((1, 0.9), (0, 0.3))
    ]
    [delta] = verdict(*runs).deltas
    assert delta.by_seed == pytest.approx((0.1, 0.1))
    assert delta.outcome == "above"


def test_only_equal_inferences_are_compared():
    """Accuracy by global prototypes beside accuracy by head is no comparison; both heads are."""
    both = {"head": (0.8, 0.8), "local": (0.5, 0.5)}
    found = verdict(
        record("local", both),
        record("fedproto", {"head": (0.7, 0.7), "global": (0.9, 0.9), "local": (0.6, 0.6)}, slots=EUCLID),
    )
    assert {delta.inference: round(delta.mean, 6) for delta in found.deltas} == {"head": -0.1, "local": 0.1}
    assert found.notes == ("fedproto counts by global prototypes, which is not compared: local has none",)


def test_a_trained_head_is_compared_with_the_head_of_local():
    [head, trained] = verdict(
        record("local", {"head": (0.5, 0.5)}),
        record("lg-fedavg", {"head": (0.4, 0.4), "trained": (0.6, 0.6)}),
    ).deltas
    assert (head.mean, trained.mean) == pytest.approx((-0.1, 0.1))


@pytest.mark.parametrize("slots", ["distance cosine, infer head", "distance mse, masked always, infer head"])
def test_local_prototypes_compared_otherwise_are_left_out(slots):
    both = {"head": (0.5, 0.5), "local": (0.5, 0.5)}
    found = verdict(record("local", both), record("fedproto", both, slots=slots))
    assert [delta.inference for delta in found.deltas] == ["head"]


def test_a_client_without_prototypes_counts_as_wrong():
    found = verdict(
        record("local", {"local": (0.5, 0.5), "head": (NAN, NAN)}),
        record("fedproto", {"local": (NAN, 1.0)}, slots="distance mse, infer local"),
    )
    [delta] = found.deltas
    assert delta.mean == pytest.approx(0.75 - 0.5)
    assert (delta.better, delta.worse) == (1, 1)


def test_without_a_run_of_local_it_says_so():
    found = verdict(record("fedproto", {"head": (0.5, 0.5)}), record("fedorgp", {"head": (0.5, 0.5)}))
    assert (found.deltas, found.notes) == (
        (),
        ("there is no finished run of local: add one with --set method.name=local",),
    )


@pytest.mark.parametrize(
    ("settings", "attributes"), [(["seed=5"], {}), (["train.lr=0.1"], {}), ([], {"checksum_split": "other"})]
)
def test_another_seed_setting_or_split_is_not_compared(settings, attributes):
    found = verdict(
        record("local", {"head": (0.5, 0.5)}),
        record("fedorgp", {"head": (0.5, 0.5)}, *settings, **attributes),
    )
    assert found.deltas == ()
    assert "no run of local has the same setting, split and seed" in found.notes[0]


def test_what_is_not_finished_is_not_compared():
    found = verdict(
        record("local", {"head": (0.5, 0.5)}), record("fedorgp", {"head": (0.5, 0.5)}, status="stopped")
    )
    assert (found.deltas, found.notes) == ((), ("fedorgp is not compared: not finished",))


def test_show_of_several_runs_closes_with_the_verdict(hpcfl):
    for method in ("local", "fedproto"):
        hpcfl("train", *SHORT, f"--set=method.name={method}", "--out", f"{method}.h5")
    shown = hpcfl("show", "local.h5", "fedproto.h5").output
    lines = shown[shown.index("Did federation help?") :].splitlines()
    assert lines[2].startswith("fedproto  head ")
    assert "one seed: no interval" in lines[4]
    assert lines[-1] == "note: fedproto counts by global prototypes, which is not compared: local has none"
    assert "Not known" in hpcfl("show", "fedproto.h5", "fedproto.h5").output
