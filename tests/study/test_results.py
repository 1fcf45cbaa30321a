"""What a study found is merged, averaged over seeds, shown, and read from whatever lies there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result
from rich.console import Console

from hpcfl.api import open_study
from hpcfl.config.loading import dump_config
from hpcfl.engine import launch
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.runtime.lock import LockHeld, RunLock
from hpcfl.study import merged_file
from hpcfl.study.results_table import _table
from hpcfl.study.run import run_study
from hpcfl.study.run_store import RunStore
from hpcfl.study.study_file import read_study
from hpcfl.utils.hdf5_file import append_trailer
from tests.helpers.disk import largest_file
from tests.helpers.studies import GOOD, start


def test_merging_looks_when_its_turn_has_come(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """A job waits for another that merges; meanwhile the last cell ends."""
    take = RunLock.acquire

    def slow(self: RunLock, timeout: float | None = None) -> None:
        if self.path.name == "study.h5.lock":
            monkeypatch.setattr(RunLock, "acquire", take)
            assert start(tiny, GOOD[1:2]) == 0
        take(self, timeout)

    monkeypatch.setattr(RunLock, "acquire", slow)
    assert start(tiny, GOOD[:1]) == 0
    with h5py.File(tiny.parent / "out" / "study.h5") as file:
        assert file["/cell/status"].asstr()[()].tolist() == ["finished"] * 2


def test_a_study_of_nothing_but_bad_cells_ends_well(tiny: Path):
    with pytest.raises(BadInput, match=r"tiny.toml: every cell: train.lr = -1.0: must be greater than 0"):
        start(tiny, None, "train.lr=-1.0")
    tiny.write_text('[[block]]\nname = "b"\ncells = [{train.lr = -1.0}, {train.lr = -2.0}]\n')
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
        accuracy = [read_log(out / f"{name}.h5")["/round/accuracy"] for name in names]
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
    config.write_text(dump_config(cell.config))
    assert launch.launch_train(str(config), [], str(out / f"{GOOD[2]}.h5"), False) == 0  # by hand
    (out / f"{GOOD[3]}.h5").write_text("not a log")
    assert start(tiny, GOOD[2:5]) == 1
    with h5py.File(out / "study.h5") as file:
        assert file["/cell/name"].asstr()[()].tolist() == [*GOOD[:3], GOOD[4]]
    assert "8 cells, 4 finished, 1 bad, 3 waiting" in capfd.readouterr().out


def test_a_study_without_a_round_is_merged(tiny: Path):
    out = tiny.parent / "out"
    store = RunStore(out)
    store.make()
    store.mark_failed(read_study(tiny).cells[0], "MemoryError")
    assert start(tiny, GOOD[:1]) == 1
    with h5py.File(out / "study.h5") as file:
        assert len(file["/cell/name"]) == 0
        assert file["/curve/accuracy_mean"].shape == (0, 0)


def test_a_job_that_cannot_merge_says_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    def held(*_: object) -> None:
        raise LockHeld("study.h5.lock is held by another job")

    monkeypatch.setattr("hpcfl.study.run.write_results", held)
    assert start(tiny, GOOD[:1]) == 0
    assert (
        "not merged (study.h5.lock is held by another job), the cells' logs are whole"
        in capfd.readouterr().out
    )


@pytest.mark.parametrize("size", [0, 1000, 8000])
def test_a_full_disk_while_merging_is_one_sentence(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, size: int
):
    out = tiny.parent / "out"
    assert start(tiny, GOOD[:1]) == 0
    before = (out / "study.h5").read_bytes()
    assert len(before) > 8000
    write = merged_file.write_atomically

    def full(path: Path, data: bytes) -> None:
        with largest_file(size):
            write(path, data)

    monkeypatch.setattr(merged_file, "write_atomically", full)
    assert start(tiny, GOOD[1:2]) == 1
    said = f"not merged (cannot write {out}/study.h5: File too large), the cells' logs are whole"
    assert said in capfd.readouterr().out
    assert (out / "study.h5").read_bytes() == before
    assert not list(out.glob("*.part"))


def test_the_small_scale_is_marked_everywhere(
    tiny: Path, hpcfl: Callable[..., Result], capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")  # so that no name is folded
    assert run_study(str(tiny), "small", [], None, GOOD[:1]) == 0
    out = tiny.parent / "runs" / "tiny-small"
    log = out / f"{GOOD[0]}.h5"
    assert read_log(log).attributes["scale"] == "small"
    assert read_log(log).rounds_done == 2
    for shown in (
        ["show", log],
        ["show", out],
        ["show", out / "study.h5"],
        ["show", log, log],
        ["watch", log],
    ):
        assert "tiny (small scale)" in hpcfl(*shown).output
    printed = capfd.readouterr().out
    assert "tiny (small scale)" in printed, "the run itself"
    assert "its numbers mean nothing" in printed
    assert hpcfl("export", log, "--to", "tensorboard").exit_code == 0
    (events,) = out.glob("*-tensorboard/events.*")
    assert b"tiny (small scale)" in events.read_bytes()
    assert "tiny (small scale): 5 cells" in hpcfl("study", "status", tiny, "--scale", "small").output
    with h5py.File(out / "study.h5") as file:
        assert file.attrs["scale"] == "small"
    assert open_study(out).title == "tiny (small scale)"


@pytest.mark.slow
def test_a_damaged_log_is_a_sentence_wherever_it_is_met(tiny: Path, hpcfl: Callable[..., Result]):
    """A log without one of its attributes, or with an array in its place, or with a row too few."""
    assert start(tiny, GOOD[:2]) == 0
    out, store, cell = tiny.parent / "out", RunStore(tiny.parent / "out"), read_study(tiny).cells[0]
    log = store.log(cell)
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
            append_trailer(log)
            assert store.progress(cell).state in ("bad", "finished", "unfinished"), name
            for path in (log, out):
                done = hpcfl("show", path)
                assert done.exit_code in (0, 2), (name, change, path, done.exception)
                assert done.exit_code == 0 or len(done.output.splitlines()) == 1
            if name not in ("study", "scale"):
                assert GOOD[1] in [each.name for each in open_study(out)]
    assert store.progress(cell).state == "bad", "a row too few"
    assert start(tiny, GOOD[:2]) == 1, "the others go on"
    assert [each.name for each in open_study(out)] == GOOD[1:2]


def test_one_damaged_log_is_named_and_blocks_nothing(
    tiny: Path, hpcfl: Callable[..., Result], capfd: pytest.CaptureFixture
):
    """One bit of one cell's log: status, run and show name the cell and go on with the others."""
    assert start(tiny, GOOD[:2]) == 0
    out = tiny.parent / "out"
    log, store = out / f"{GOOD[0]}.h5", RunStore(out)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)
    problem = f"cannot read {log}: damaged: its bytes do not match its digest"

    status = hpcfl("study", "status", tiny, "--out", out, "--all")
    assert status.exit_code == 0
    assert "6 waiting, 1 bad" in status.output or "1 bad, 1 finished" in status.output, status.output
    assert store.progress(read_study(tiny).cells[0]).reason.startswith(problem)

    capfd.readouterr()
    assert start(tiny, GOOD[:3]) == 1
    printed = capfd.readouterr().out
    assert f"{GOOD[0]}: bad: {problem}; without this file the cell runs again" in printed
    assert read_log(out / f"{GOOD[2]}.h5").status == "finished"

    shown = hpcfl("show", out)
    assert (shown.exit_code, problem in " ".join(shown.output.split())) == (0, True), shown.output
    assert [each.name for each in open_study(out)] == GOOD[1:3]
    with h5py.File(out / "study.h5") as file:
        assert file["/cell/name"].asstr()[()].tolist() == GOOD[1:3]

    log.unlink()
    assert start(tiny, GOOD[:1]) == 0
    assert open_study(out).unreadable == ()


def test_a_foreign_file_is_no_study(tmp_path: Path, hpcfl: Callable[..., Result]):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.attrs["kind"] = [1, 2]
    done = hpcfl("show", tmp_path / "other.h5")
    assert (done.exit_code, "not a log of hpcfl" in done.output) == (2, True)


def test_only_runs_that_differ_by_seeds_are_averaged(tiny: Path, hpcfl: Callable[..., Result]):
    """Another learning rate, more rounds: each has a row of its own."""
    assert start(tiny, GOOD[:2]) == 0
    assert start(tiny, GOOD[1:2], "federation.rounds=4") == 0
    out = tiny.parent / "out"
    assert open_study(out).means()["seeds"].tolist() == [1, 1]
    rows = [line.split() for line in hpcfl("show", out).output.splitlines() if line.split()[:1] == ["1"]]
    assert [row[2] for row in rows] == ["3", "4"], "rounds"
    with h5py.File(out / "study.h5") as file:
        assert file["/group/seeds"][()].tolist() == [1], "of this study there is one"


def test_a_directory_belongs_to_one_study_at_one_scale(tiny: Path):
    assert start(tiny, GOOD[:1]) == 0
    assert run_study(str(tiny), "small", [], str(tiny.parent / "out"), GOOD[:1]) == 2
    other = tiny.with_name("other.toml")
    other.write_text(tiny.read_text())
    assert start(other, GOOD[1:2]) == 2
    assert [cell.name for cell in open_study(tiny.parent / "out")] == GOOD[:1]
    merged = tiny.parent / "out" / "study.h5"
    merged.write_bytes(merged.read_bytes()[:100])
    assert start(tiny, GOOD[:1]) == 0, "a damaged one is made anew"
    with h5py.File(merged) as file:
        assert len(file["/cell/name"]) == 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_tells_rows_apart_is_shown_at_any_width(tiny: Path, width: int, capsys: pytest.CaptureFixture):
    assert start(tiny, GOOD) == 0
    table = _table(
        [(json.loads(key[1]), cells) for key, cells in open_study(tiny.parent / "out").groups.items()], width
    )
    capsys.readouterr()
    Console(width=width).print(table)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["method", "clients"],
        ["fedproto", "4"],
        ["fedproto", "6"],
        ["local", "4"],
    ]
    assert all("±" in line for line in lines[1:])
    assert ("efficiency" in lines[0]) is (width == 200)


@pytest.mark.parametrize("out", ["", "a file"])
def test_what_is_no_directory_is_refused(tiny: Path, out: str, hpcfl: Callable[..., Result]):
    Path("a file").touch()
    for command in ("run", "status", "submit"):
        done = hpcfl("study", command, tiny, "--out", out)
        assert (done.exit_code, "must be a directory" in done.output) == (2, True), done.output


def test_a_directory_that_may_not_be_written_is_refused_at_once(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hpcfl.study.run_store.os.access", lambda path, mode: False)
    assert start(tiny, GOOD[:1]) == 2
