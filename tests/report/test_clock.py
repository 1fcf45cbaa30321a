"""`hpcfl clock` gives what a run with these devices would have logged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import read_log
from tests.helpers.cases import FEW, OWN
from tests.helpers.runs import SHORT, assert_equal_runs, options

EXACT = ["fedproto", "fedtgp-sparse", "anchor", "anchor-fixed", "local", "fednh", "fedkd", "fml", "fedgh"]
FACTORS = [
    *("method.energy_start=0.85", "models.features=32"),
    *("train.lr=0.2", "train.epochs=3", "train.batch_size=5"),
]
"""FedKD sends factors, whose rank is not the same for all clients."""


@pytest.mark.slow
@pytest.mark.parametrize("method", [*EXACT, "fedsap-ssl", "fedmps", "feddistill", "lg-fedavg", "fedgen"])
def test_the_clock_of_a_log_is_that_of_a_run_with_these_devices(hpcfl, method):
    settings = options(*FEW, *OWN.get(method, []), f"method.name={method}", "federation.participation=5")
    system = options("system.profile=phones", "system.latency={median=0.1, sigma=1.0}")
    assert hpcfl("train", "--out", "with.h5", *settings, *system).exit_code == 0
    assert hpcfl("train", "--out", "without.h5", *settings).exit_code == 0
    done = hpcfl("clock", "without.h5", "--profile=phones", system[1], "-o", "clocked.h5")
    assert done.exit_code == 0, done.output
    if method != "fedgen":
        assert_equal_runs("with.h5", "clocked.h5")
        assert ("by client, exact" in done.output) == (method != "fedkd")
        return
    one, other = read_log("with.h5"), read_log("clocked.h5")
    np.testing.assert_allclose(one["/virtual/seconds"], other["/virtual/seconds"], rtol=0.01)
    sent = [(log["/virtual/bytes_up"] + log["/virtual/bytes_down"]).sum() for log in (one, other)]
    assert abs(sent[0] - sent[1]) < 20, "rounding"


def test_factors_whose_ranks_differ_are_shared_out_and_that_is_said(hpcfl):
    settings = options(*FEW, *FACTORS, "method.name=fedkd", "federation.participation=5")
    phones = options("system.profile=phones")
    assert hpcfl("train", "--out", "with.h5", *settings, *phones).exit_code == 0
    assert hpcfl("train", "--out", "without.h5", *settings).exit_code == 0
    done = hpcfl("clock", "without.h5", "--profile=phones", "-o", "clocked.h5")
    assert done.exit_code == 0, done.output
    assert "by client not exact" in done.output
    one, other = read_log("with.h5"), read_log("clocked.h5")
    sent_TM = one["/virtual/bytes_up"]
    assert any(len(set(sent_M[sent_M > 0])) > 1 for sent_M in sent_TM)
    np.testing.assert_allclose(sent_TM.sum(1), other["/virtual/bytes_up"].sum(1), rtol=0.01)
    np.testing.assert_array_equal(one["/virtual/seconds_compute"], other["/virtual/seconds_compute"])
    np.testing.assert_allclose(one["/virtual/seconds"], other["/virtual/seconds"], rtol=0.3)


def test_what_is_shown_and_what_is_written(hpcfl):
    assert hpcfl("train", "--out", "run.h5", *SHORT).exit_code == 0
    before = Path("run.h5").read_bytes()
    done = hpcfl("clock", "run.h5", "--profile", "lan", "--target", "0.1", "-o", "lan.h5")
    assert Path("run.h5").read_bytes() == before
    assert "lan: 50 GFLOP/s, up 1e+03 Mbit/s" in done.output
    assert "40 of 40 participations in time; fairness 1.000" in done.output
    assert "to 10.00%  round 1: up" in done.output
    run = read_log("lan.h5")
    assert run.config.system.profile == "lan"
    reached = run.to_target(0.1)
    assert reached is not None
    assert reached.virtual_seconds == run["/virtual/seconds"][0]
    assert reached.joules == run["/virtual/joules"][0]
    assert " J until then" in hpcfl("show", "lan.h5", "--target", "0.1").output
    shown = hpcfl("show", "run.h5", "lan.h5", "--target", "0.1").output
    assert "virtual to it" in shown
    assert "virtual" in hpcfl("watch", "lan.h5", "--once").output
    assert hpcfl("report", "run.h5", "lan.h5", "-o", "report").exit_code == 0
    for name in ("accuracy-by-virtual-time", "virtual-time-to-target", "energy-to-target", "participation"):
        assert Path(f"report/figures/{name}.csv").read_text().count("\n") > 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "needs devices"),
        (["--set", "train.lr=1"], "only keys of [system], and data.root"),
        (["--profile", "lan", "--set", "system.deadline=3"], "for rounds that wait for all"),
        (["--profile", "lan", "--set", "system.availability=0.5"], "for rounds that wait for all"),
        (["--profile", "lan", "-o", "run.h5"], "cannot write run.h5: it exists"),
        (["--profile", "lan", "-o", "nowhere/a.h5"], "cannot write nowhere/a.h5: No such file"),
        (["--profile", "lan", "--set", "system.speed=0"], "must be a number > 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(hpcfl, arguments, says):
    assert hpcfl("train", "--out", "run.h5", *SHORT).exit_code == 0
    done = hpcfl("clock", "run.h5", *arguments)
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1


def test_clients_that_a_table_calls_unavailable_at_times_are_refused(hpcfl):
    Path("d.csv").write_text("client,availability\n3,0.1\n")
    settings = options("system.profile=lan", "system.table=d.csv")
    assert hpcfl("train", "--out", "without.h5", *SHORT).exit_code == 0
    assert hpcfl("train", "--out", "with.h5", *SHORT, *settings).exit_code == 0
    for log, given, says in (
        ("without.h5", settings[1:], "system.table has clients that are not always available: train a run"),
        ("with.h5", [], "with.h5: clients were not available in some rounds"),
    ):
        done = hpcfl("clock", log, "--profile=lan", *given)
        assert done.exit_code == 2
        assert done.output == f"hpcfl: {says}\n"


def test_a_run_with_a_deadline_or_other_data_is_refused(hpcfl):
    assert hpcfl("train", "--out", "run.h5", *SHORT, "--set=system.deadline=9.0").exit_code == 0
    done = hpcfl("clock", "run.h5", "--profile=lan")
    assert done.exit_code == 2
    assert done.output == "hpcfl: system.deadline = 9.0: run.h5 did not wait for all\n"
    assert hpcfl("clock", "nothing.h5", "--profile=lan").exit_code == 2
