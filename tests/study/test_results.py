"""What a study found is merged, averaged over seeds, shown, and read from whatever lies there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

from hpcfl import job
from hpcfl.api import open_study
from hpcfl.configfile import dump
from hpcfl.errors import BadInput
from hpcfl.lock import RunLock
from hpcfl.log.reader import read
from hpcfl.study.file import read_study
from hpcfl.study.run import run
from hpcfl.study.shelf import Shelf
from tests.study.tiny import GOOD, start


def test_merging_looks_when_its_turn_has_come(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """A job waits for another that merges; meanwhile the last cell ends."""
    take = RunLock.take

    def slow(self: RunLock, patience: float | None = None) -> None:
        if self.path.name == "study.h5.lock":
            monkeypatch.setattr(RunLock, "take", take)
            assert start(tiny, GOOD[1:2]) == 0
        take(self, patience)

    monkeypatch.setattr(RunLock, "take", slow)
    assert start(tiny, GOOD[:1]) == 0
    with h5py.File(tiny.parent / "out" / "study.h5") as file:
        assert file["/cell/status"].asstr()[()].tolist() == ["finished"] * 2


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
    assert "tiny (small scale): 5 cells" in hpcfl("study", "status", tiny, "--scale", "small").output
    with h5py.File(out / "study.h5") as file:
        assert file.attrs["scale"] == "small"
    assert open_study(out).title == "tiny (small scale)"


def test_a_damaged_log_is_a_sentence_wherever_it_is_met(tiny: Path, hpcfl: Callable[..., Result]):
    """A log without one of its attributes, or with an array in its place, or with a row too few."""
    assert start(tiny, GOOD[:2]) == 0
    out, shelf, cell = tiny.parent / "out", Shelf(tiny.parent / "out"), read_study(tiny).cells[0]
    log = shelf.log(cell)
    whole = log.read_bytes()
    with h5py.File(log) as file:
        names = list(file.attrs)
    for name in (*names, "/round/loss"):
        for change in ("remove", "replace"):
            log.write_bytes(whole)
            with h5py.File(log, "a") as file:
                if name.startswith("/"):
                    rows = file[name][1:]
                    del file[name]
                    file[name] = rows
                elif change == "remove":
                    del file.attrs[name]
                else:
                    file.attrs[name] = [1, 2]
            assert shelf.look(cell).state in ("bad", "finished", "unfinished"), name
            for path in (log, out):
                done = hpcfl("show", path)
                assert done.exit_code in (0, 2), (name, change, path, done.exception)
                assert done.exit_code == 0 or len(done.output.splitlines()) == 1
            if name not in ("study", "scale"):
                assert GOOD[1] in [each.name for each in open_study(out)]
    assert shelf.look(cell).state == "bad", "a row too few"
    assert start(tiny, GOOD[:2]) == 1, "the others go on"
    assert [each.name for each in open_study(out)] == GOOD[1:2]


def test_a_foreign_file_is_no_study(tmp_path: Path, hpcfl: Callable[..., Result]):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.attrs["kind"] = [1, 2]
    done = hpcfl("show", tmp_path / "other.h5")
    assert (done.exit_code, "not a log of hpcfl" in done.output) == (2, True)
