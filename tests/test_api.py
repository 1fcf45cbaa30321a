"""hpcfl from Python, in one process; tests/mpi has it under MPI."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hpcfl
from hpcfl.config.loading import load_config
from hpcfl.engine import launch
from hpcfl.engine.worker import Worker
from hpcfl.export.command import print_exported
from hpcfl.study.run import run_study
from tests.helpers.cases import SAVED as SMALL
from tests.helpers.mpi import ROOT
from tests.helpers.pages import examples
from tests.helpers.runs import assert_equal_runs

TABLES = {
    "data": {"samples_per_class": 200},
    "federation": {"rounds": 4},
    "models": {"features": 8},
    "log": {"prototypes_every": 2},
}
"""As SMALL."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the command makes."""
    out = tmp_path_factory.mktemp("small") / "small.h5"
    assert launch.launch_train(None, SMALL, str(out), False) == 0
    return out


def test_train_is_the_command_whatever_the_configuration_is_given_as(small: Path, tmp_path: Path):
    file = tmp_path / "c.toml"
    file.write_text("models.features = 8\nlog.prototypes_every = 2\n")
    more = ["data.samples_per_class=200", "federation.rounds=4"]
    given: list[tuple[Any, list[str]]] = [
        (TABLES, []),
        (load_config(None, SMALL), []),
        (None, SMALL),
        (
            {"data.samples_per_class": 200, "federation.rounds": np.int64(4), "models": {"features": 8}},
            SMALL[-1:],
        ),
        (file, more),
        (str(file), more),
    ]
    for number, (config, settings) in enumerate(given):
        out = tmp_path / f"{number}.h5"
        run = hpcfl.train(config, out=out, settings=settings)
        assert run is not None
        assert (run.path, run.status, run.rounds_done) == (out, "finished", 4)
        assert_equal_runs(out, small)
    assert "samples_per_class" in TABLES["data"], "what was given is not changed"


def test_things_are_shown_in_a_line(small: Path):
    assert repr(hpcfl.open_run(small)) == f"<Run {small}: fedproto on spiral, finished, 4 of 4 rounds>"
    assert set(hpcfl.__all__) <= set(dir(hpcfl))


def test_a_finished_run_is_returned_as_it_is(small: Path, capfd: pytest.CaptureFixture):
    before = small.stat().st_mtime_ns
    run = hpcfl.train(TABLES, out=small)
    assert run is not None
    assert (run.rounds_done, small.stat().st_mtime_ns) == (4, before)
    assert capfd.readouterr() == ("", ""), "silent unless progress is asked for"


def test_torch_is_left_as_it_was(tmp_path: Path):
    torch.manual_seed(7)
    want = torch.rand(3)
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        hpcfl.train(TABLES, out=tmp_path / "run.h5")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert not torch.are_deterministic_algorithms_enabled()
    torch.testing.assert_close(torch.rand(3), want, rtol=0, atol=0)


def test_what_is_wrong_is_raised(small: Path, tmp_path: Path):
    with pytest.raises(hpcfl.BadInput, match=r"train.lr = 0.0"):
        hpcfl.train({"train": {"lr": 0.0}})
    with pytest.raises(hpcfl.BadInput, match="must be a list of KEY=VALUE"):
        hpcfl.train(settings="train.lr=0.1")
    with pytest.raises(hpcfl.BadInput, match="another configuration"):
        hpcfl.train(None, out=small)
    with pytest.raises(hpcfl.RunFailed, match="every client diverged"):
        hpcfl.train(TABLES, out=tmp_path / "d.h5", settings=["train.lr=1e30"])
    with pytest.raises(hpcfl.BadInput, match=r"[Nn]o such"):
        hpcfl.open_run(tmp_path / "none.h5")
    with pytest.raises(hpcfl.BadInput, match=r"[Nn]o such"):
        hpcfl.open_study(tmp_path / "none")
    with pytest.raises(hpcfl.BadInput, match="holds no cells"):
        hpcfl.open_study(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hpcfl.nothing


def test_a_signal_stops_after_the_round_and_handlers_are_put_back(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before, original = signal.getsignal(signal.SIGUSR1), Worker.train_client

    def update(self: Worker, t: int, *more: object) -> object:
        if t == 1 and more[0] == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, t, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "train_client", update)
        run = hpcfl.train(TABLES, out=tmp_path / "run.h5")
    assert run is not None
    assert (run.status, run.rounds_done) == ("stopped", 2)
    assert signal.getsignal(signal.SIGUSR1) is before
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(hpcfl.train(TABLES, out=tmp_path / "run.h5")))
    thread.start()  # where no handler can be set
    thread.join()
    assert found[0].rounds_done == 4
    assert_equal_runs(tmp_path / "run.h5", small)


def test_a_network_that_changes_the_directory_moves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    start, elsewhere = tmp_path / "start", tmp_path / "elsewhere"
    start.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(start)
    original = Worker.train_client

    def move(self: Worker, t: int, i: int) -> Any:
        os.chdir(elsewhere)
        return original(self, t, i)

    monkeypatch.setattr(Worker, "train_client", move)
    run = hpcfl.train(out="run.h5", settings=[*SMALL, "runtime.checkpoint_rounds=1"])
    assert run is not None
    assert run.status == "finished"
    assert sorted(os.listdir(start)) == ["run.h5", "run.h5.ckpt"]
    assert os.listdir(elsewhere) == []
    assert (start / "run.h5.ckpt" / f"manifest-{run.rounds_done - 1}.json").exists()


def test_frames_hold_what_the_log_holds(small: Path, monkeypatch: pytest.MonkeyPatch):
    run = hpcfl.open_run(small)
    rounds, clients = run.frame("rounds"), run.frame("clients")
    np.testing.assert_array_equal(rounds["accuracy"], run["/round/accuracy"])
    np.testing.assert_array_equal(
        clients.pivot(index="round", columns="client", values="loss"), run["/client/loss"]
    )
    with pytest.raises(hpcfl.BadInput, match="'x' is no table of a run: rounds, "):
        run.frame("x")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(hpcfl.BadInput, match="pip install pandas"):
        run.frame()


def test_the_examples_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    alone, _, _, study, network, torch_alone = examples("python.md")
    exec(alone, {})
    assert capsys.readouterr().out.startswith("finished [")
    exec(network, {"hpcfl": hpcfl})
    print_exported(["three.h5"], "torch", None, [5], samples=True)
    exec(torch_alone, {})
    here, _, without_hpcfl, by_prototypes = capsys.readouterr().out.splitlines()
    assert here == without_hpcfl
    run = hpcfl.open_run("three.h5")
    logged = [run[f"/client/accuracy_{name}"][-1, 5] for name in ("head", "global")]
    assert [here, by_prototypes] == [str(torch.tensor(value)) for value in logged]
    path, names = (
        ROOT / "configs" / "studies" / "scalability.toml",
        ["clients-local-20-1.0-s0", "clients-local-20-1.0-s1"],
    )
    assert run_study(str(path), "small", ["federation.rounds=1"], None, names) == 0
    found: dict[str, Any] = {"hpcfl": hpcfl}
    exec(study, found)
    assert found["whole"].rounds_done == 1
    assert sorted(found["curves"]) == names
