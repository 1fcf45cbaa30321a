"""Temporary files of a path, which may have any name, and atomic writes."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from hpcfl.utils.files import remove_leftovers, rename_if_free, temporary_path, write_atomically


@pytest.mark.parametrize("name", ["a**b.h5", "a*b.h5", "[ab].h5", "a?b.h5"])
def test_a_name_is_no_pattern(tmp_path, name):
    """Only the file of this name and a process that is gone is removed; process 0 is never there."""
    own, other = (f"{each}.{platform.node()}-0.part" for each in (name, "axb.h5"))
    for leftover in (own, other):
        (tmp_path / leftover).touch()
    remove_leftovers(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [other]


def test_a_temporary_name_cannot_be_foreseen(tmp_path):
    """A link with the name that another process expects would lead to any file of the user."""
    with temporary_path(tmp_path / "run.h5") as one, temporary_path(tmp_path / "run.h5") as other:
        assert one != other
        assert one.name.startswith(f"run.h5.{platform.node()}-{os.getpid()}-")
        one.touch()
        remove_leftovers(tmp_path / "run.h5")
        assert one.exists(), "its process lives"
    assert list(tmp_path.iterdir()) == []


def test_leftovers_that_are_links_go_and_their_targets_stay(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    for number, target in enumerate(("mine", "nothing")):
        (tmp_path / f"run.h5.{platform.node()}-0-{number}.part").symlink_to(target)
    (tmp_path / "run.h5.elsewhere-1-a.part").symlink_to("nothing")
    remove_leftovers(tmp_path / "run.h5")
    assert sorted(os.listdir(tmp_path)) == ["mine", "run.h5.elsewhere-1-a.part"], "one is not a day old"
    assert os.listdir(tmp_path / "mine") == ["thesis"]


def test_a_file_that_its_process_completes_meanwhile_is_no_leftover(tmp_path, monkeypatch):
    (tmp_path / "run.h5.elsewhere-1-a.part").touch()

    def vanish(path):
        path.unlink()
        return os.lstat(path)

    monkeypatch.setattr(Path, "lstat", vanish)
    remove_leftovers(tmp_path / "run.h5")
    assert os.listdir(tmp_path) == []


def test_a_whole_file_or_none(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"one")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"two")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"one", ["file"])


def test_a_name_that_is_taken_stays(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("nothing")
    with pytest.raises(FileExistsError):
        rename_if_free(tmp_path / "a", tmp_path / "b")
    rename_if_free(tmp_path / "a", tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]
