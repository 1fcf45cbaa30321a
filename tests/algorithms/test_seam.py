"""The engine does what an algorithm declares: networks that travel, further networks, blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import hpcfl
from hpcfl.algorithms.build import build_algorithm
from hpcfl.checkpoint.store import checkpoint_directory
from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.metrics.metric import declare
from hpcfl.training.client_layout import ClientLayouts
from tests.helpers.runs import assert_equal_runs
from tests.helpers.toy_algorithm import Toy

TOY = [
    *("method.name=tests.helpers.toy_algorithm:Toy", "models.list=['mlp_256']", "models.features=8"),
    *("data.samples_per_class=200", "federation.rounds=4", "federation.participation=0.3"),
    "train.lr=0.5",
]


@pytest.fixture
def run(tmp_path: Path):
    return hpcfl.train(settings=TOY, out=tmp_path / "run.h5")


def test_a_download_of_the_network_evaluates_all_clients_again(run):
    """After the download all clients have the same network; before it each has its own."""
    trained, after = run["/client/accuracy_trained"], run["/client/accuracy_head"]
    assert not np.array_equal(trained, after)
    unchanged = ~run["/round/participants"][1:]
    np.testing.assert_array_equal(trained[1:][unchanged], trained[:-1][unchanged])
    assert (after[1:][unchanged] != after[:-1][unchanged]).any()
    np.testing.assert_array_equal(run["/client/accuracy"], after)


def test_bytes_are_those_that_are_declared(run):
    parameters = int(run["/clients/parameters"][0])
    assert (run["/round/bytes_up"] == 6 * 4 * parameters).all()
    assert (run["/round/bytes_down"] == 20 * 4 * parameters).all()
    visits = run["/client/visits"]
    numbers = np.nansum(np.where(run["/round/participants"], visits, 0), axis=1)
    np.testing.assert_array_equal(run["/round/bytes_side"], 4 * numbers + 6 * 8)


def test_kept_blocks_count_the_rounds_of_a_client(run):
    seen = np.cumsum(run["/round/participants"], axis=0)
    np.testing.assert_array_equal(
        run["/client/visits"], np.where(run["/round/participants"], 1 + seen, np.nan)
    )


def test_scratch_is_memory_of_the_rank_and_not_of_the_client():
    plan = plan_run(load_config(None, TOY))
    layouts = ClientLayouts(plan, build_algorithm(plan, torch.device("cpu")))
    state, scratch = layouts.states["mlp_256"], layouts.scratch["mlp_256"]
    assert {"visits", "follower.head.weight", "head.weight", "diverged"} <= state.offsets.keys()
    assert {"distance", "scratch.head.weight"} <= scratch.offsets.keys()
    assert not state.offsets.keys() & scratch.offsets.keys()
    assert layouts.buffer_bytes("mlp_256") == state.nbytes + scratch.nbytes


def test_a_run_that_is_stopped_after_every_round_ends_with_the_same_results(run, tmp_path):
    for rounds in range(1, 5):
        hpcfl.train(settings=[*TOY, f"federation.rounds={rounds}"], out=tmp_path / "again.h5")
    assert checkpoint_directory(tmp_path / "again.h5").is_dir()
    assert_equal_runs(tmp_path / "again.h5", tmp_path / "run.h5")


def test_an_update_that_is_not_finite_is_left_out(tmp_path):
    run = hpcfl.train(settings=[*TOY, "train.lr=1e30"], out=tmp_path / "run.h5")
    assert run is not None
    diverged, participants = run["/client/diverged"], run["/round/participants"]
    assert diverged.any()
    np.testing.assert_array_equal(run["/round/uploads"], (participants & ~diverged).sum(1))
    assert (run["/client/accuracy"][diverged] == 0).all()
    assert (run["/client/accuracy"][0] > 0).any(), "what the others send is finite"


class Bad(Toy):
    """Breaks one promise of the seam."""

    mistake = ""

    def train(self, client, download):
        losses = super().train(client, download)
        return {} if self.mistake == "train" else losses

    def aggregate(self, t, last, uploads):
        return None if self.mistake == "aggregate" else super().aggregate(t, last, uploads)

    def round_values(self, t, download, uploads, receivers_M):
        return {"/round/surprise": 1.0} if self.mistake == "round_values" else {}


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("train", "Bad: `train` must return the loss"),
        ("aggregate", "Bad: `aggregate` must return a payload"),
        ("round_values", "Bad does not declare the value /round/surprise"),
    ],
)
def test_a_broken_promise_names_the_algorithm(tmp_path, monkeypatch, mistake, sentence):
    monkeypatch.setattr(Bad, "mistake", mistake)
    settings = [*TOY, "method.name=tests.algorithms.test_seam:Bad"]
    with pytest.raises((TypeError, ValueError), match=sentence):
        hpcfl.train(settings=settings, out=tmp_path / "run.h5")


class Twice(Toy):
    metrics = (*Toy.metrics, *Toy.metrics)


class Lost(Toy):
    metrics = (declare("/round/layers", "round layer", "f8", "by layer"),)


@pytest.mark.parametrize(("name", "sentence"), [("Twice", "declared twice"), ("Lost", "dimension 'layer'")])
def test_metrics_that_cannot_be_are_refused(tmp_path, name, sentence):
    settings = [*TOY, f"method.name=tests.algorithms.test_seam:{name}"]
    with pytest.raises(hpcfl.BadInput, match=sentence):
        hpcfl.train(settings=settings, out=tmp_path / "run.h5")


def test_a_head_that_depends_on_a_block_and_predictions_of_ones_own(tmp_path):
    """The client's own block is there whenever a download is applied."""
    mix = [*TOY[2:], "method.name=tests.helpers.toy_algorithm:Mix", "models.features=8"]
    run = hpcfl.train(settings=mix, out=tmp_path / "run.h5")
    again = hpcfl.train(settings=mix, out=tmp_path / "again.h5")
    assert run is not None
    assert again is not None
    assert_equal_runs(tmp_path / "run.h5", tmp_path / "again.h5")
    np.testing.assert_array_equal(
        run["/client/accuracy_first"][-1] > 0, (run["/client/accuracy_first"] > 0).any(0)
    )
