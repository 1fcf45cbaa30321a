"""`hpcfl diff`: equal runs, and the first round, client and dataset in which others differ."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest

from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import read_log
from hpcfl.log.schema import BASE_METRICS
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS

RESULTS = sum(metric.kind == "result" for metric in (*BASE_METRICS, *PROTOTYPE_METRICS))
SETTINGS = [
    *("data.samples_per_class=100", "federation.clients=4", "partition.name=iid", "models.features=8"),
    *("federation.rounds=4", "log.prototypes_every=2", "log.local_prototypes=true"),
]


@pytest.fixture
def train(hpcfl):
    """Returns a function that runs a small federation to a log of this name."""

    def run(out: str, *more: str) -> None:
        settings = [f"--set={setting}" for setting in (*SETTINGS, *more)]
        assert hpcfl("train", "--out", out, *settings).exit_code == 0

    return run


@pytest.fixture
def pair(train):
    """Two logs of the same run."""
    train("a.h5")
    shutil.copy("a.h5", "b.h5")
    return "a.h5", "b.h5"


def change(log: str, path: str, place: tuple[int, ...], value: object) -> None:
    with h5py.File(log, "r+") as file:
        file[path][place] = value


def test_equal_runs_have_code_0(hpcfl, train):
    train("a.h5")
    train("b.h5", "runtime.arena=private")
    done = hpcfl("diff", "a.h5", "b.h5")
    assert (done.exit_code, done.output) == (0, f"equal: 4 rounds, {RESULTS} datasets, bit for bit\n")


def test_the_first_round_client_and_dataset_are_named(hpcfl, pair):
    """Of round 3 the dataset by client is named, although a dataset by round differs in it too."""
    change("b.h5", "/round/accuracy", (2,), 0.5)
    change("b.h5", "/client/loss", (2, 3), 7.0)
    change("b.h5", "/client/best", (3, 0), 7.0)
    change("b.h5", "/prototypes/global", (1, 0, 0), 7.0)  # saved after round 4
    loss = read_log("a.h5")["/client/loss"][2, 3]
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        f"different: first in round 3, client 3, /client/loss: {loss} and 7.0",
        f"in all 4 of {RESULTS} datasets differ",
    ]


def test_what_is_saved_now_and_then_is_found_by_its_round(pair):
    change("b.h5", "/prototypes/local", (1, 2, 5, 0), 9.0)
    found = compare_runs(read_log("a.h5"), read_log("b.h5"))
    assert found is not None
    assert (found.path, found.round, found.client) == ("/prototypes/local", 4, 2)


def test_what_does_not_grow_by_round_comes_first(pair):
    change("b.h5", "/clients/flops", (1,), 1)
    change("b.h5", "/client/loss", (0, 0), 7.0)
    found = compare_runs(read_log("a.h5"), read_log("b.h5"))
    assert found is not None
    assert (found.path, found.round, found.client, found.datasets) == ("/clients/flops", None, 1, 2)


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (np.nan, -np.nan)])
def test_bits_are_compared_and_not_numbers(hpcfl, pair, one, other):
    change("a.h5", "/round/loss", (0,), one)
    change("b.h5", "/round/loss", (0,), other)
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.exit_code == 1
    assert "round 1, /round/loss: " in done.output
    first, second = done.output.splitlines()[0].split(": ")[-1].split(" and ")
    assert first != second


def test_a_dataset_that_only_one_log_has_is_named(hpcfl, pair):
    with h5py.File("b.h5", "r+") as file:
        del file["/round/loss_ce"]
        file.attrs["schema"] = 2
        del file.attrs["datasets"]
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.exit_code == 0
    assert done.output.splitlines()[1] == "not compared, because only one of them has it: /round/loss_ce"


def test_measured_values_may_differ(hpcfl, pair):
    change("b.h5", "/round/seconds", (0,), 99.0)
    change("b.h5", "/client/rank", (0, 0), 99)
    assert hpcfl("diff", "a.h5", "b.h5").exit_code == 0


def test_a_longer_run_is_different(hpcfl, train):
    train("a.h5")
    train("b.h5", "federation.rounds=6")
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "different: first in round 5, rounds_done: 4 rounds and 6 rounds",
        "the rounds that both have are equal",
        "configuration: federation.rounds = 4 in a.h5, 6 in b.h5",
    ]


def test_the_configuration_and_the_machine_are_named(hpcfl, train):
    train("a.h5")
    train("b.h5", "train.lr=0.02", "federation.clients=5")
    with h5py.File("b.h5", "r+") as file:
        file.attrs["version_torch"] = "1.0"
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.exit_code == 1
    torch = read_log("a.h5").attributes["version_torch"]
    assert done.output.splitlines()[2:] == [
        "configuration: train.lr = 0.01 in a.h5, 0.02 in b.h5 and 1 more",
        "split differs",
        f"version_torch: {torch} and 1.0",
    ]
    assert "first in round 1, /round/" in done.output


def test_an_edited_source_is_named(hpcfl, pair):
    for log, checksum in (("a.h5", "1"), ("b.h5", "2")):
        with h5py.File(log, "r+") as file:
            file.attrs["checksum_code_own.ideas"] = checksum
    change("b.h5", "/client/loss", (0, 0), 7.0)
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.exit_code == 1
    assert done.output.splitlines()[2:] == ["code of own.ideas differs"]


def test_a_lost_row_of_a_saved_round_is_a_difference(hpcfl, pair):
    with h5py.File("b.h5", "r+") as file:
        for path in [f"/prototypes/{name}" for name in ("global", "local", "saved_round")] + [
            "/client/head_norms",
            "/refine/distances",
        ]:
            values, attributes = file[path][1:], dict(file[path].attrs)
            del file[path]
            file.create_dataset(path, data=values).attrs.update(attributes)
    assert hpcfl("diff", "a.h5", "b.h5").exit_code == 1


def test_a_shorter_run_evaluated_out_of_turn_is_compared_before_that(hpcfl, train):
    train("a.h5", "log.evaluate_every=3")
    train("b.h5", "log.evaluate_every=3", "federation.rounds=6")
    done = hpcfl("diff", "a.h5", "b.h5")
    assert done.output.splitlines()[:2] == [
        "different: first in round 5, rounds_done: 4 rounds and 6 rounds",
        "the rounds that both have are equal",
    ]


def test_bad_input_has_code_2(hpcfl, pair):
    with open("text.h5", "w") as file:
        file.write("no log")
    for arguments in (["a.h5", "missing.h5"], ["text.h5", "a.h5"], ["a.h5"], ["a.h5", "b.h5", "a.h5"]):
        done = hpcfl("diff", *arguments)
        assert done.exit_code == 2, arguments
        assert "Traceback" not in done.output
