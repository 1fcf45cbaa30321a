"""Whole runs with simulated devices: who counts, what a dropped client keeps, and what is logged."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.engine.server import Server
from hpcfl.engine.virtual_clock import VirtualClock
from hpcfl.exchange.payload import ClassRows
from hpcfl.log.reader import Run, read_log
from hpcfl.log.virtual_metrics import VIRTUAL_METRICS
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.system.events import Status
from tests.helpers.cases import FEW, OWN
from tests.helpers.runs import SMALL, options, train_log

PHONES = ["system.profile=phones", "system.latency={median=1.0, sigma=1.0}"]
LATE = [*PHONES, "system.deadline=1.0"]
"""About half of the participants are late."""


@pytest.fixture
def run(hpcfl):
    return lambda *settings, code=0: train_log(hpcfl, *SMALL, *settings, code=code)


def status(log: Run, *wanted: Status) -> np.ndarray:
    return np.isin(log["/virtual/status"], wanted)


def assert_same_results(one: Run, other: Run) -> None:
    """Checks that two runs have the same results but for those of the virtual clock."""
    paths = {path for path, metric in one.metrics.items() if metric.kind == "result" and path in one.datasets}
    for path in sorted(paths - {metric.path for metric in VIRTUAL_METRICS} - one.lacking - other.lacking):
        np.testing.assert_array_equal(one[path], other[path], err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("method", CATALOGUE)
def test_with_infinitely_fast_devices_and_links_results_are_those_without_a_system(hpcfl, method):
    settings = [*FEW, f"method.name={method}", *OWN.get(method, [])]
    without = train_log(hpcfl, *settings)
    assert not any(path.startswith("/virtual") for path in without.datasets if path not in without.lacking)
    for deadline in ([], ["system.deadline=1e-9", "system.late=keep"]):
        ideal = train_log(hpcfl, *settings, "system.profile=ideal", *deadline)
        assert not ideal["/virtual/seconds"].any()
        assert np.isnan(ideal["/virtual/joules"]).all()
        assert_same_results(without, ideal)


def test_a_round_is_the_formula(run):
    """Latency + bytes ÷ links + FLOPs ÷ speed; 3 passes per sample and epoch, and 1 for prototypes."""
    own = ["system.speed=2.0", "system.up=8.0", "system.down=16.0", "system.latency=0.25"]
    log = run(*own, "system.watts=3.0", "system.radio_watts=0.5", "train.epochs=2")
    classes_M, samples_M = (log["/clients/class_counts"] > 0).sum(1), log["/clients/train_samples"]
    up_M = (classes_M * (8 + 1) * 4 + 1) / 1e6  # with sample counts and a bitmap
    known = [0, *log["/prototypes/present"].sum(1)[:-1]]
    for t in range(4):
        down = (known[t] * 8 * 4 + 1) / 2e6 if known[t] else 0
        compute_M = (2 * 3 + 1) * samples_M * log["/clients/flops"] / 2e9
        np.testing.assert_allclose(log["/virtual/client_seconds"][t], 0.25 + up_M + down + compute_M)
        np.testing.assert_allclose(log["/virtual/client_joules"][t], 3 * compute_M + 0.5 * (up_M + down))
        assert log["/virtual/seconds"][t] == log["/virtual/client_seconds"][t].max()
        np.testing.assert_allclose(log["/virtual/joules"][t], log["/virtual/client_joules"][t].sum())
    assert log["/virtual/speed"].tolist() == [2.0] * 20


@pytest.mark.parametrize("late", ["drop", "keep"])
def test_only_uploads_in_time_enter_the_aggregate(run, late):
    log = run(
        *LATE,
        f"system.late={late}",
        "method.aggregate=mean",
        "log.prototypes_every=1",
        "log.local_prototypes=true",
    )
    in_time, earlier = status(log, Status.IN_TIME), log["/virtual/earlier"]
    assert status(log, Status.LATE).any(1).all()
    assert earlier.any() == (late == "keep")
    assert log["/round/uploads"].tolist() == (in_time | earlier).sum(1).tolist()
    counts_M = (log["/clients/class_counts"] > 0).sum(1)
    assert (log["/round/bytes_up"] == counts_M.sum() * 8 * 4).all(), "what is dropped was sent"
    local_MKD, has = log["/prototypes/local"], (log["/clients/class_counts"] > 0)
    for t in range(4):
        counted = in_time[t] | earlier[t]
        for k in np.flatnonzero(has[counted].any(0)):
            mean_D = local_MKD[t][counted & has[:, k], k].astype(np.float64).mean(0)
            np.testing.assert_allclose(log["/prototypes/global"][t, k], mean_D, rtol=1e-5, atol=1e-6)
    assert (log["/virtual/seconds"] <= 1.0).all()


@pytest.mark.parametrize("method", ["fedproto", "fedtgp-sparse", "fedavg", "fedkd", "fedgen", "fedgh"])
def test_what_a_dropped_upload_holds_changes_nothing(hpcfl, monkeypatch, method):
    settings = [*FEW, *OWN.get(method, []), f"method.name={method}", *LATE, "federation.participation=5"]
    as_sent = train_log(hpcfl, *settings)
    assert status(as_sent, Status.LATE).any()

    close_round = VirtualClock.close_round

    def spoil(self, *arguments):
        counted, values = close_round(self, *arguments)
        for upload in arguments[-1]:
            if all(upload is not each for each in counted):
                for value in upload.payload.values():
                    tensor = value.value_KD if isinstance(value, ClassRows) else value
                    tensor.fill_(77)
        return counted, values

    monkeypatch.setattr(VirtualClock, "close_round", spoil)
    assert_same_results(as_sent, train_log(hpcfl, *settings))


def test_a_late_client_keeps_what_it_has_trained_and_a_failed_one_loses_it(run):
    settings = ["method.infer=head", "train.lr=0.1"]
    local = run("method.name=local", "train.lr=0.1")
    nobody = run(*settings, *PHONES, "system.deadline=1e-9")
    assert (nobody["/virtual/status"] == Status.LATE).all()
    assert not nobody["/round/uploads"].any()
    assert not nobody["/prototypes/present"].any()
    assert not nobody["/round/bytes_down"].any()
    np.testing.assert_array_equal(nobody["/client/accuracy_head"], local["/client/accuracy_head"])
    failed = run(*settings, *PHONES, "system.failure=1.0")
    assert (failed["/virtual/status"] == Status.FAILED).all()
    assert np.isnan(failed["/client/loss"]).all()
    assert not failed["/round/bytes_up"].any()
    assert (failed["/client/accuracy_head"] == failed["/client/accuracy_head"][0]).all()
    assert (failed["/virtual/client_seconds"] > 0).all()
    assert (failed["/virtual/seconds_up"] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", CATALOGUE)
def test_if_nobody_is_in_time_the_download_stays_as_it_was(hpcfl, monkeypatch, method):
    downloads = []
    original = Server._set_download

    def record(self, download):
        original(self, download)
        downloads.append(self.digest)

    monkeypatch.setattr(Server, "_set_download", record)
    log = train_log(
        hpcfl, *FEW, *OWN.get(method, []), f"method.name={method}", *PHONES, "system.deadline=1e-9"
    )
    assert len(downloads) == 1 + log.rounds_done
    assert len(set(downloads)) == 1
    assert not log["/round/uploads"].any()


def test_over_selection_takes_the_first_uploads(run):
    log = run(*PHONES, "federation.participation=5", "system.extra=3")
    assert (log["/round/participants"].sum(1) == 8).all()
    assert (log["/round/uploads"] == 5).all()
    for seconds_M, in_time, length in zip(
        log["/virtual/client_seconds"], status(log, Status.IN_TIME), log["/virtual/seconds"], strict=True
    ):
        assert length == np.sort(seconds_M)[4] == seconds_M[in_time].max()
    assert (status(log, Status.SURPLUS).sum(1) == 3).all()


def test_rounds_without_available_clients_pass(run, tmp_path):
    (tmp_path / "t.csv").write_text("client,first,last\n3,1,1\n4,1,3\n")
    log = run("system.profile=lan", f"system.trace={tmp_path / 't.csv'}")
    assert [np.flatnonzero(each).tolist() for each in log["/round/participants"]] == [[3, 4], [4], [4], []]
    assert (log["/virtual/seconds"] > 0).tolist() == [True, True, True, False]
    assert (status(log, Status.UNAVAILABLE).sum(1) == [18, 19, 19, 20]).all()
    np.testing.assert_array_equal(log["/prototypes/present"][3], log["/prototypes/present"][2])
    assert log.status == "finished"


def test_the_server_learns_what_is_sent_only_once_even_from_late_uploads(hpcfl):
    """FedGen's sample counts: without them, a client that was late once would weigh nothing later."""
    settings = [*FEW, "method.name=fedgen", *PHONES, "system.deadline=3.0", "federation.participation=6"]
    log = train_log(hpcfl, *settings, "federation.rounds=6")
    assert status(log, Status.LATE).any()
    assert np.isfinite(log["/refine/loss"][log["/round/uploads"] > 0]).all()


def test_another_table_or_trace_is_another_run(hpcfl, tmp_path):
    (tmp_path / "d.csv").write_text("client,speed\n0,1\n")
    given = options(*SMALL, "system.table=d.csv", "federation.rounds=1")
    assert hpcfl("train", "--out", "a.h5", *given).exit_code == 0
    (tmp_path / "d.csv").write_text("client,speed\n0,2\n")
    done = hpcfl("train", "--out", "a.h5", *given)
    assert done.exit_code == 2
    assert "other content of the same name (system_table)" in done.output
    assert read_log("a.h5")["/virtual/speed"][0] == 1


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("system.speed=0", "system.speed = 0: must be a number > 0"),
        ("system.speed=nan", "system.speed = nan: must be a number > 0"),
        ("system.latency=-1", "system.latency = -1: must be a number ≥ 0"),
        ("system.latency={median=nan, sigma=1.0}", "must be a number ≥ 0"),
        ("system.deadline=nan", "system.deadline = nan: must be a finite number"),
        ("system.deadline=-1", "system.deadline = -1: must be greater than 0"),
        ("system.availability=nan", "system.availability = nan: must be"),
        ("system.extra=-1", "system.extra = -1: must be"),
        ("system.up={median=3.0}", "a log-normal quantity has the keys median and sigma"),
        ("system.up={mlp_9=3.0}", "system.up = 'mlp_64': allowed is one of mlp_9"),
        ("system.late=keep", "no upload is late where a round waits for all"),
        ("system.extra=1", "1 more are more than federation.clients = 20"),
        ("system.failure=1.5", "system.failure = 1.5: must be less than or equal to 1"),
        ("system.profile=phone", "(nearest: phones)"),
        ("system.table=nothing.csv", "cannot read it: No such file"),
    ],
)
def test_bad_systems_are_refused_in_one_sentence(hpcfl, setting, says):
    done = hpcfl("train", f"--set={setting}")
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1
    assert (
        "there are no devices for system.deadline"
        in hpcfl("train", "--set=system.profile=off", "--set=system.deadline=1").output
    )
