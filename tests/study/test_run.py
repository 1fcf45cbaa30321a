"""Cells run one after another, go on after a stop, and are marked where they cannot be run."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

from hpcfl import job, worker
from hpcfl.api import open_study
from hpcfl.checkpoint import directory
from hpcfl.configfile import dump
from hpcfl.errors import BadInput
from hpcfl.lock import RunLock
from hpcfl.log.reader import read
from hpcfl.study.file import read_study
from hpcfl.study.run import run
from hpcfl.study.shelf import PATIENCE, Shelf
from tests.mpi.cases import results

TINY = """
about = "how accuracy depends on clients"
[set]
data.samples_per_class = 60
federation.rounds = 3
models.features = 4
partition.alpha = 10.0
[small.set]
federation.rounds = 2
[[block]]
name = "clients"
[block.grid]
method.name = ["fedproto", "local"]
federation.clients = [4, 6]
seed = [0, 1]
[block.small.grid]
seed = [0]
[[exclude]]
method.name = "local"
federation.clients = 6
[[block]]
name = "odd"
cells = [{train.lr = 1e30}, {partition.classes_per_client = 9, partition.name = "pathological"}]
"""

GOOD = ["clients-fedproto-4-s0", "clients-fedproto-4-s1", "clients-fedproto-6-s0", "clients-fedproto-6-s1"]
GOOD += ["clients-local-4-s0", "clients-local-4-s1"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A study that takes seconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def start(study: Path, only: list[str] | None = None, *settings: str, **more: bool) -> int:
    """Runs a study beside its file and returns the exit code."""
    return run(str(study), "full", settings, str(study.parent / "out"), only or [], **more)


def states(study: Path) -> dict[str, str]:
    shelf = Shelf(study.parent / "out")
    return {cell.name: shelf.look(cell).state for cell in read_study(study).cells}


def test_cells_are_the_runs_that_they_describe(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture):
    assert start(tiny) == 1, "one cell diverges, one is refused"
    said = capfd.readouterr()
    for cell in read_study(tiny).cells:
        if cell.name in GOOD:
            assert cell.config is not None
            config = tmp_path / f"{cell.name}.toml"
            config.write_text(dump(cell.config))
            assert job.train(str(config), [], str(tmp_path / "one.h5"), True) == 0
            assert results(tmp_path / "out" / f"{cell.name}.h5") == results(tmp_path / "one.h5")
    found = states(tiny)
    assert [name for name, state in found.items() if state == "finished"] == GOOD
    assert sorted(state for name, state in found.items() if name not in GOOD) == ["diverged", "waiting"]
    assert "6 finished, 1 diverged, 1 waiting" in said.out
    assert "every client diverged" in said.out
    assert "partition" in said.out


def test_a_finished_study_runs_nothing_again(tiny: Path, capfd: pytest.CaptureFixture):
    start(tiny, GOOD)
    before = {path: path.stat().st_mtime_ns for path in (tiny.parent / "out").glob("clients-*.h5")}
    assert len(before) == len(GOOD)
    capfd.readouterr()
    assert start(tiny, GOOD) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert "8 cells, 6 finished, 2 waiting" in capfd.readouterr().out


def test_a_signal_stops_after_the_round_and_the_same_command_goes_on(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
):
    original = worker.Worker.update

    def update(self: worker.Worker, t: int, i: int, target: object) -> object:
        if t == 1 and self.fed.config.federation.clients == 6:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, t, i, target)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(worker.Worker, "update", update)
        patch.setattr("hpcfl.guard.Signals._handle", lambda self, *_: setattr(self, "asked", True))
        assert start(tiny, GOOD) == 75
    assert list(states(tiny).values())[:4] == ["finished", "finished", "unfinished", "waiting"]
    assert start(tiny, GOOD) == 0
    whole = {name: results(tiny.parent / "out" / f"{name}.h5") for name in GOOD}
    other = tiny.parent / "other"
    assert run(str(tiny), "full", [], str(other), GOOD) == 0
    assert whole == {name: results(other / f"{name}.h5") for name in GOOD}


def test_an_exception_ends_the_job_and_the_next_start_passes_the_cell_over(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    def broken(self: worker.Worker, *_: object) -> None:
        raise ZeroDivisionError("made to fail")

    with monkeypatch.context() as patch:
        patch.setattr("hpcfl.guard.os._exit", lambda code: None)
        patch.setattr(worker.Worker, "update", broken)
        with pytest.raises(SystemExit):
            start(tiny, GOOD)
    assert start(tiny, GOOD) == 1
    assert "ZeroDivisionError: made to fail" in capfd.readouterr().out
    assert list(states(tiny).values())[:2] == ["failed", "finished"]
    assert "made to fail" in (tiny.parent / "out" / "failed" / f"{GOOD[0]}.txt").read_text()
    assert start(tiny, GOOD, retry=True) == 0
    assert states(tiny)[GOOD[0]] == "finished"


def test_a_cell_that_is_killed_every_time_is_given_up(tiny: Path):
    cell, shelf = read_study(tiny).cells[0], Shelf(tiny.parent / "out")
    shelf.make()
    for _ in range(PATIENCE - 1):
        shelf.begin(cell, 0)
    assert shelf.look(cell).state == "waiting"
    shelf.begin(cell, 1)  # it has come further
    assert shelf.look(cell).state == "waiting"
    for _ in range(PATIENCE - 1):
        shelf.begin(cell, 1)
    assert shelf.look(cell).reason == f"started {PATIENCE} times without a further round"
    shelf.forgive(cell)
    assert shelf.look(cell).state == "waiting"


def test_a_cell_that_another_job_runs_is_left_to_it(tiny: Path, capfd: pytest.CaptureFixture):
    (tiny.parent / "out").mkdir()
    lock = RunLock(tiny.parent / "out" / f"{GOOD[0]}.h5")
    lock.take()
    assert start(tiny, GOOD[:2]) == 0
    assert f"{GOOD[0]}: another job runs it" in capfd.readouterr().out
    assert list(states(tiny).values())[:2] == ["running", "finished"]
    lock.release()
    assert states(tiny)[GOOD[0]] == "waiting"


def test_a_changed_study_does_not_touch_other_runs(tiny: Path, capfd: pytest.CaptureFixture):
    assert start(tiny, GOOD[:1]) == 0
    before = (tiny.parent / "out" / f"{GOOD[0]}.h5").read_bytes()
    tiny.write_text(tiny.read_text().replace("models.features = 4", "models.features = 5"))
    assert start(tiny, GOOD[:1]) == 1
    assert "models.features = 4 there, 5 here" in capfd.readouterr().out
    with h5py.File(tiny.parent / "out" / "study.h5") as file:
        assert len(file["/cell/name"]) == 0, "it is not this study's"
    assert (tiny.parent / "out" / f"{GOOD[0]}.h5").read_bytes() == before


@pytest.mark.parametrize("keep", [False, True])
def test_more_rounds_extend_finished_cells(tiny: Path, keep: bool, capfd: pytest.CaptureFixture):
    assert start(tiny, GOOD[:1], keep=keep) == 0
    assert directory(tiny.parent / "out" / f"{GOOD[0]}.h5").exists() is keep
    tiny.write_text(tiny.read_text().replace("federation.rounds = 3", "federation.rounds = 5"))
    assert states(tiny)[GOOD[0]] == "unfinished"
    assert start(tiny, GOOD[:1]) == 0
    assert ("continues after round 3 of 5" in capfd.readouterr().out) is keep
    assert read(tiny.parent / "out" / f"{GOOD[0]}.h5").rounds_done == 5


def test_no_cell_begins_where_the_time_is_over(tiny: Path, capfd: pytest.CaptureFixture):
    assert start(tiny, GOOD, "runtime.walltime_minutes=0.1") == 75
    assert set(states(tiny).values()) == {"waiting"}
    assert "stopped early" in capfd.readouterr().out
    assert not (tiny.parent / "out" / "starts").exists()


def test_a_job_that_is_started_again_takes_the_cell_that_it_holds(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
):
    (tiny.parent / "out").mkdir()
    lock = RunLock(tiny.parent / "out" / f"{GOOD[0]}.h5")
    lock.take()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    threading.Timer(2.0, lock.release).start()  # the file server notices that its owner is gone
    assert start(tiny, GOOD[:1]) == 0
    assert states(tiny)[GOOD[0]] == "finished"


def test_a_cell_that_diverged_is_tried_again_only_if_asked(tiny: Path):
    odd = ["odd-lr=1e+30"]
    assert start(tiny, odd) == start(tiny, odd) == 1
    assert start(tiny, odd, retry=True) == 1
    kept = sorted(path.name for path in (tiny.parent / "out").glob("*.h5"))
    assert kept == ["odd-lr=1e+30.1.h5", "odd-lr=1e+30.h5", "study.h5"]
    assert [cell.name for cell in open_study(tiny.parent / "out")] == odd


def test_a_study_of_nothing_but_bad_cells_ends_well(tiny: Path):
    tiny.write_text('[[block]]\nname = "b"\ncells = [{train.lr = -1.0}]\n')
    assert start(tiny) == 1
    with h5py.File(tiny.parent / "out" / "study.h5") as file:
        assert file["/cell/name"].shape == file["/group/seeds"].shape == (0,)


def test_a_study_that_grew_keeps_its_groups(tiny: Path):
    assert start(tiny, GOOD[:1], "method.name=fedproto", "federation.clients=4", "seed=0") == 0
    assert start(tiny, GOOD[:4]) == 0
    means = open_study(tiny.parent / "out").means()
    assert means["federation.clients"].tolist() == [4, 6]
    assert means["seeds"].tolist() == [2, 2]
    with h5py.File(tiny.parent / "out" / "study.h5") as file:
        assert file["/group/accuracy_mean"][()].tolist() == means["accuracy_mean"].tolist()


def test_wrong_names_and_threads_are_refused(tiny: Path):
    with pytest.raises(BadInput, match=r"no such cell.*nearest: clients-local-4-s"):
        start(tiny, ["clients-local-4-s9"])
    tiny.write_text(tiny.read_text() + '[[block]]\nname = "threads"\ncells = [{runtime.threads = 2}]\n')
    assert start(tiny) == 2


def test_the_merged_file_has_means_over_seeds(tiny: Path):
    start(tiny, GOOD[3:])
    start(tiny, GOOD[:3])
    out = tiny.parent / "out"
    with h5py.File(out / "study.h5") as file:
        assert (file.attrs["study"], file.attrs["scale"]) == ("tiny", "full")
        names = file["/cell/name"].asstr()[()].tolist()
        assert names == GOOD, "those of all starts, not of the last"
        accuracy = [read(out / f"{name}.h5")["/round/accuracy"] for name in names]
        groups = [json.loads(values) for values in file["/group/values"].asstr()[()]]
        assert groups[1] == {"method.name": "fedproto", "federation.clients": 6}
        assert file["/group/seeds"][()].tolist() == [2, 2, 2]
        both = np.array([accuracy[2][-1], accuracy[3][-1]])
        assert file["/group/accuracy_mean"][1] == both.mean()
        assert file["/group/accuracy_std"][1] == pytest.approx(abs(both[0] - both[1]) / np.sqrt(2))
        np.testing.assert_array_equal(file["/curve/accuracy_mean"][1], (accuracy[2] + accuracy[3]) / 2)
        assert file["/cell/group"][()].tolist() == [0, 0, 1, 1, 2, 2]


def test_the_merged_file_has_the_cells_of_all_jobs(tiny: Path, capfd: pytest.CaptureFixture):
    out = tiny.parent / "out"
    for name in GOOD[:2]:
        assert start(tiny, [name]) == 0
    config = tiny.parent / "one.toml"
    cell = next(cell for cell in read_study(tiny).cells if cell.name == GOOD[2])
    assert cell.config is not None
    config.write_text(dump(cell.config))
    assert job.train(str(config), [], str(out / f"{GOOD[2]}.h5"), False) == 0  # by hand
    (out / f"{GOOD[3]}.h5").write_text("not a log")
    assert start(tiny, GOOD[2:5]) == 1
    with h5py.File(out / "study.h5") as file:
        assert file["/cell/name"].asstr()[()].tolist() == [*GOOD[:3], GOOD[4]]
    assert "8 cells, 4 finished, 1 bad, 3 waiting" in capfd.readouterr().out


def test_a_study_without_a_round_is_merged(tiny: Path):
    out = tiny.parent / "out"
    shelf = Shelf(out)
    shelf.make()
    shelf.fail(read_study(tiny).cells[0], "MemoryError")
    assert start(tiny, GOOD[:1]) == 1
    with h5py.File(out / "study.h5") as file:
        assert len(file["/cell/name"]) == 0
        assert file["/curve/accuracy_mean"].shape == (0, 0)


def test_a_job_that_cannot_merge_says_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    def held(*_: object) -> None:
        raise BadInput("study.h5.lock is held by another job")

    monkeypatch.setattr("hpcfl.study.run.write_results", held)
    assert start(tiny, GOOD[:1]) == 0
    assert (
        "not merged (study.h5.lock is held by another job), the cells' logs are whole"
        in capfd.readouterr().out
    )


def test_the_small_scale_is_marked_everywhere(
    tiny: Path, hpcfl: Callable[..., Result], capfd: pytest.CaptureFixture
):
    assert run(str(tiny), "small", [], None, GOOD[:1]) == 0
    out = tiny.parent / "runs" / "tiny-small"
    log = out / f"{GOOD[0]}.h5"
    assert read(log).attributes["scale"] == "small"
    assert read(log).rounds_done == 2
    for shown in (
        ["show", log],
        ["show", out],
        ["show", out / "study.h5"],
        ["show", log, log],
        ["watch", log],
    ):
        assert "tiny (small scale)" in hpcfl(*shown).output
    assert "tiny (small scale)" in capfd.readouterr().out, "the run itself"
    assert hpcfl("export", log, "--to", "tensorboard").exit_code == 0
    (events,) = out.glob("*-tensorboard/events.*")
    assert b"tiny (small scale)" in events.read_bytes()
    assert "tiny-small" in hpcfl("study", "status", tiny, "--scale", "small").output
    with h5py.File(out / "study.h5") as file:
        assert file.attrs["scale"] == "small"
    assert open_study(out).title == "tiny (small scale)"
