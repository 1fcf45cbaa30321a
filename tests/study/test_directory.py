"""Whose directory it is, and that the files of a study stay in it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcfl.engine import worker
from hpcfl.errors import BadInput
from hpcfl.study.cells import Cell
from hpcfl.study.directory_owner import claim_directory
from hpcfl.study.run import StudyRunner, run_study
from hpcfl.study.run_store import CellProgress, RunStore
from hpcfl.study.status import print_status
from hpcfl.study.study_file import read_study
from hpcfl.study.submit import submit_study
from tests.helpers.studies import GOOD, start, states


def test_a_log_kept_aside_does_not_take_the_name_of_another_cell(tmp_path: Path):
    """The cell b-1 is extended and begins again, before the cell b-1.1 has run."""
    study = tmp_path / "weights.toml"
    text = 'set = {data.samples_per_class = 200, federation.rounds = 1}\n[[block]]\nname = "b"\n'
    study.write_text(text + "grid.method.weight = [1, 1.1]\n")
    assert start(study, ["b-1"]) == 0
    study.write_text(study.read_text().replace("rounds = 1", "rounds = 2"))
    assert start(study, ["b-1"]) == 0
    assert states(study) == {"b-1": "finished", "b-1.1": "waiting"}
    assert start(study, ["b-1.1"]) == 0
    logs = sorted(path.name for path in (tmp_path / "out").glob("b*.h5"))
    assert logs == ["b-1.1.h5", "b-1.h5", "b-1~1.h5"]


def test_a_directory_belongs_to_the_study_that_started_first(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    """The other study starts while the first runs its first cell, long before anything is merged."""
    other = tiny.with_name("other.toml")
    codes: list[int] = []
    other.write_text(tiny.read_text())
    original = StudyRunner._run

    def both(self: StudyRunner, cell: Cell, progress: CellProgress) -> int:
        if not codes:
            codes.append(-1)
            codes.append(start(other, GOOD[1:2]))
        return original(self, cell, progress)

    monkeypatch.setattr(StudyRunner, "_run", both)
    assert start(tiny, GOOD[:1]) == 0
    assert codes == [-1, 2]
    assert "is the directory of the study tiny; choose another --out" in capfd.readouterr().err
    assert states(tiny)[GOOD[1]] == "waiting"


def test_two_studies_at_the_same_instant(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """Both have seen a directory without an owner."""
    one, store = read_study(tiny), RunStore(tiny.parent / "out")
    other = dataclasses.replace(one, name="other")
    link = os.link

    def slow(*names: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        claim_directory(other, store)
        link(*names)

    monkeypatch.setattr(os, "link", slow)
    with pytest.raises(BadInput, match="is the directory of the study other"):
        claim_directory(one, store)
    claim_directory(other, store)
    assert os.listdir(store.path) == ["study.json"]


def test_an_owner_that_cannot_be_read_is_one_sentence(tiny: Path):
    (tiny.parent / "out").mkdir()
    (tiny.parent / "out" / "study.json").write_text("[]")
    with pytest.raises(BadInput, match=r"cannot read .*study.json: not the file that names the study"):
        claim_directory(read_study(tiny), RunStore(tiny.parent / "out"))


def test_a_network_that_changes_the_directory_moves_no_file(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(tiny.parent)
    original = worker.Worker.train_client

    def move(self: worker.Worker, t: int, i: int) -> object:
        os.chdir(elsewhere)
        return original(self, t, i)

    monkeypatch.setattr(worker.Worker, "train_client", move)
    assert run_study(tiny.name, "full", [], "out", GOOD[:2]) == 0
    assert list(elsewhere.iterdir()) == []
    assert list(states(tiny).values())[:2] == ["finished", "finished"]
    assert sorted(path.name for path in (tiny.parent / "out").iterdir()) == [
        *(f"{name}.h5" for name in GOOD[:2]),
        *("starts", "study.h5", "study.json"),
    ]


def test_the_text_of_a_failed_cell_cannot_control_the_terminal(
    tiny: Path, capsys: pytest.CaptureFixture[str]
):
    failed = tiny.parent / "out" / "failed" / f"{GOOD[0]}.txt"
    failed.parent.mkdir(parents=True)
    failed.write_text("ValueError: \x1b]0;evil\x07\x9b31m")
    assert start(tiny, GOOD[:1]) == 1
    assert submit_study(str(tiny), "full", [], str(tiny.parent / "out"), 1, 1, False, None, True, []) == 0
    print_status(str(tiny), "full", [], str(tiny.parent / "out"), None, True)
    said = capsys.readouterr().out
    assert said.count("ValueError: ?]0;evil??31m") == 2  # in the table of `status` it is folded
    assert all(letter.isprintable() or letter == "\n" for letter in said)


@pytest.mark.parametrize("name", ["study.json", "failed/{}.txt", "starts/{}.json", "{}.h5"])
def test_a_pipe_in_the_directory_is_not_waited_for(tiny: Path, name: str):
    """In a child process, as a wait for a pipe would not end."""
    pipe = tiny.parent / "out" / name.format(GOOD[0])
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "hpcfl", "study", "run", str(tiny), "--out", str(tiny.parent / "out")]
    done = subprocess.run([*command, "--cell", GOOD[0]], capture_output=True, text=True, timeout=60)
    expected = {"study.json": 2, "starts/{}.json": 0}.get(name, 1)
    assert (done.returncode, "Traceback" in done.stderr) == (expected, False), done.stderr
