"""Cells run one after another, go on after a stop, and are marked where they cannot be run."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import h5py
import pytest

from hpcfl.api import open_study
from hpcfl.checkpoint.store import checkpoint_directory
from hpcfl.config.loading import dump_config
from hpcfl.engine import launch, worker
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.runtime.lock import RunLock
from hpcfl.study.cells import Cell
from hpcfl.study.run import StudyRunner, run_study
from hpcfl.study.run_store import MAX_STARTS, CellProgress, RunStore
from hpcfl.study.study_file import read_study
from tests.helpers.runs import assert_equal_runs
from tests.helpers.studies import GOOD, start, states


def test_cells_are_the_runs_that_they_describe(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture):
    assert start(tiny) == 1, "one cell diverges, one is refused"
    said = capfd.readouterr()
    for cell in read_study(tiny).cells:
        if cell.name in GOOD:
            assert cell.config is not None
            config = tmp_path / f"{cell.name}.toml"
            config.write_text(dump_config(cell.config))
            assert launch.launch_train(str(config), [], str(tmp_path / "one.h5"), True) == 0
            assert_equal_runs(tmp_path / "out" / f"{cell.name}.h5", tmp_path / "one.h5")
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
    original = worker.Worker.train_client

    def update(self: worker.Worker, t: int, i: int) -> object:
        if t == 1 and self.ctx.plan.config.federation.clients == 6:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, t, i)

    with monkeypatch.context() as patch:
        patch.setattr(worker.Worker, "train_client", update)
        patch.setattr(
            "hpcfl.runtime.exit_handling.StopSignals._handle",
            lambda self, *_: setattr(self, "received", True),
        )
        assert start(tiny, GOOD) == 75
    assert list(states(tiny).values())[:4] == ["finished", "finished", "unfinished", "waiting"]
    assert start(tiny, GOOD) == 0
    other = tiny.parent / "other"
    assert run_study(str(tiny), "full", [], str(other), GOOD) == 0
    for name in GOOD:
        assert_equal_runs(tiny.parent / "out" / f"{name}.h5", other / f"{name}.h5")


@pytest.mark.parametrize("number", [0, 1])
def test_a_signal_between_two_cells(
    tiny: Path, number: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    """After the first of two it ends the job, after the last there is nothing left to end."""
    original, seen = StudyRunner._record_end, []

    def settle(self: StudyRunner, cell: Cell, why: str) -> None:
        original(self, cell, why)
        seen.append(cell.name)
        if len(seen) == number + 1:
            self.session.signals.received = True

    monkeypatch.setattr(StudyRunner, "_record_end", settle)
    assert start(tiny, GOOD[:2]) == (75, 0)[number]
    assert seen == GOOD[: number + 1]
    assert list(states(tiny).values())[:2] == ["finished", ("waiting", "finished")[number]]
    assert (tiny.parent / "out" / "study.h5").exists() is bool(number)
    assert ("stopped early" in capfd.readouterr().out) is not number
    assert not (tiny.parent / "out" / "starts" / f"{GOOD[1]}.json").exists()


def test_an_exception_ends_the_job_and_the_next_start_passes_the_cell_over(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    def broken(self: worker.Worker, *_: object) -> None:
        raise ZeroDivisionError("made to fail")

    with monkeypatch.context() as patch:
        patch.setattr("hpcfl.runtime.exit_handling.os._exit", lambda code: None)
        patch.setattr(worker.Worker, "train_client", broken)
        with pytest.raises(SystemExit):
            start(tiny, GOOD)
    assert start(tiny, GOOD) == 1
    assert "ZeroDivisionError: made to fail" in capfd.readouterr().out
    assert list(states(tiny).values())[:2] == ["failed", "finished"]
    assert "made to fail" in (tiny.parent / "out" / "failed" / f"{GOOD[0]}.txt").read_text()
    assert start(tiny, GOOD, retry=True) == 0
    assert states(tiny)[GOOD[0]] == "finished"


def test_a_cell_that_is_killed_every_time_is_given_up(tiny: Path):
    cell, store = read_study(tiny).cells[0], RunStore(tiny.parent / "out")
    store.make()
    for _ in range(MAX_STARTS - 1):
        store.count_start(cell, 0)
    assert store.progress(cell).state == "waiting"
    store.count_start(cell, 1)  # it has come further
    assert store.progress(cell).state == "waiting"
    for _ in range(MAX_STARTS - 1):
        store.count_start(cell, 1)
    assert store.progress(cell).reason == f"started {MAX_STARTS} times without a further round"
    store.clear_failure(cell)
    assert store.progress(cell).state == "waiting"


def test_a_cell_that_another_job_runs_is_left_to_it(tiny: Path, capfd: pytest.CaptureFixture):
    (tiny.parent / "out").mkdir()
    lock = RunLock(tiny.parent / "out" / f"{GOOD[0]}.h5")
    lock.acquire()
    assert start(tiny, GOOD[:2]) == 0
    assert f"{GOOD[0]}: another job runs it" in capfd.readouterr().out
    assert list(states(tiny).values())[:2] == ["running", "finished"]
    lock.release()
    assert states(tiny)[GOOD[0]] == "waiting"


def test_a_start_counts_only_for_the_job_that_has_the_cell(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """Two jobs see a cell that waits; the other one takes it first."""
    cell, store = read_study(tiny).cells[0], RunStore(tiny.parent / "out")
    store.make()
    other, look = RunLock(store.log(cell)), RunStore.progress

    def late(self: RunStore, each: Cell) -> CellProgress:
        seen = look(self, each)
        if each.name == cell.name and other.handle < 0:
            other.acquire()
        return seen

    monkeypatch.setattr(RunStore, "progress", late)
    assert start(tiny, GOOD[:1]) == 0
    assert not store.was_interrupted(cell)
    other.release()


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
    assert checkpoint_directory(tiny.parent / "out" / f"{GOOD[0]}.h5").exists() is keep
    tiny.write_text(tiny.read_text().replace("federation.rounds = 3", "federation.rounds = 5"))
    seen = RunStore(tiny.parent / "out").progress(read_study(tiny).cells[0])
    assert (seen.state, seen.rounds) == (("unfinished", 3) if keep else ("waiting", 0))
    assert start(tiny, GOOD[:1]) == 0
    said, kept = capfd.readouterr().out, tiny.parent / "out" / f"{GOOD[0]}~1.h5"
    assert ("continues after round 3 of 5" in said) is keep
    assert (f"the old log is kept as {kept.name}" in said) is kept.exists() is not keep
    assert read_log(tiny.parent / "out" / f"{GOOD[0]}.h5").rounds_done == 5
    tiny.write_text(tiny.read_text().replace("federation.rounds = 5", "federation.rounds = 4"))
    assert states(tiny)[GOOD[0]] == "bad", "it has five"


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
    lock.acquire()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    threading.Timer(2.0, lock.release).start()  # the file server notices that its owner is gone
    assert start(tiny, GOOD[:1]) == 0
    assert states(tiny)[GOOD[0]] == "finished"


def test_a_cell_that_diverged_is_tried_again_only_if_asked(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    odd = ["odd-lr=1e+30"]
    assert start(tiny, odd) == start(tiny, odd) == 1
    assert start(tiny, odd, retry=True) == 1
    monkeypatch.setenv("HPCFL_RESTARTS", "1")
    assert start(tiny, odd, retry=True) == 1, "a job that is started again has tried"
    kept = sorted(path.name for path in (tiny.parent / "out").glob("*.h5"))
    assert kept == ["odd-lr=1e+30.h5", "odd-lr=1e+30~1.h5", "study.h5"]
    assert [cell.name for cell in open_study(tiny.parent / "out")] == odd


def test_wrong_names_and_threads_are_refused(tiny: Path):
    with pytest.raises(BadInput, match=r"no such cell.*nearest: clients-local-4-s"):
        start(tiny, ["clients-local-4-s9"])
    tiny.write_text(tiny.read_text() + '[[block]]\nname = "threads"\ncells = [{runtime.threads = 2}]\n')
    assert start(tiny) == 2
