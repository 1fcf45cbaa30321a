"""The prepared file: what is written is what is mapped, and damage is found before training."""

from __future__ import annotations

import platform
import shlex
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcfl.config.schema import DataConfig
from hpcfl.data.load import load_dataset
from hpcfl.data.prepared_file import open_prepared, verify_images
from hpcfl.errors import BadInput
from tests.helpers import layouts
from tests.helpers.mpi import mpich

TRAIN = ("--set=data.name=own", "--set=partition.name=iid", "--set=federation.clients=2")


@pytest.fixture
def own(hpcfl) -> Path:
    """A prepared dataset of 60 images, in the working directory's `data`."""
    np.savez("own.npz", x=layouts.images(60, 8), y=np.arange(60) % 3)
    assert hpcfl("data", "prepare", "own", "--source", "own.npz").exit_code == 0
    return Path("data/own.h5")


def test_images_are_mapped_not_read(own):
    data = open_prepared(own)
    assert isinstance(data.x, np.memmap)
    np.testing.assert_array_equal(data.x, layouts.images(60, 8))
    lines = Path("/proc/self/maps").read_text().splitlines()
    (mapping,) = [line for line in lines if line.endswith(str(own.resolve()))]
    assert mapping.split()[1].endswith("p"), "private: what one rank did to it no other would see"


def damage(path: Path, how: str) -> None:
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:-3000])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "replaced":
        path.write_text("not mine")
    elif how == "foreign":
        h5py.File(path, "w").close()
    elif how == "older":
        with h5py.File(path, "r+") as file:
            file.attrs["format"] = 0
    else:
        with h5py.File(path, "r+") as file:
            if how == "image":
                file["x"][40, 3, 3, 1] ^= 1
            elif how == "label":
                file["y"][6] = 2 - file["y"][6]
            elif how == "name":
                file["names"][0] = "other"
            elif how == "mean":
                file.attrs["mean"] = file.attrs["mean"] + 1e-9
            else:
                del file["x"]


SAYS = {
    "truncated": "cannot use data/own.h5: ",
    "emptied": "cannot use data/own.h5: ",
    "replaced": "cannot use data/own.h5: ",
    "foreign": "data/own.h5 is an HDF5 file, but not one that `hpcfl data prepare` made",
    "older": "data/own.h5 has format 0; this version of hpcfl reads 1",
    "image": "cannot use data/own.h5: its images were altered; make it again as before, with --fresh: ",
    "label": "cannot use data/own.h5: its labels or statistics were altered",
    "name": "cannot use data/own.h5: its labels or statistics were altered",
    "mean": "cannot use data/own.h5: its labels or statistics were altered",
    "missing": "cannot use data/own.h5: a part is missing or wrong",
}


@pytest.mark.parametrize("how", SAYS)
def test_damage_is_found_before_training(hpcfl, own, how):
    damage(own, how)
    done = hpcfl("train", *TRAIN, "--out", "run.h5")
    assert done.exit_code == 2
    assert done.output.startswith(f"hpcfl: {SAYS[how]}")
    assert done.output.count("\n") == 1
    assert not Path("run.h5").exists()
    again = hpcfl("data", "prepare", "own", "--source", "own.npz", "--fresh")
    assert again.exit_code == 0
    assert hpcfl("train", *TRAIN, "--set=federation.rounds=1", "--out", "run.h5").exit_code == 0


@pytest.mark.mpi
def test_an_altered_image_is_found_under_mpirun_and_said_once(own):
    damage(own, "image")
    done = mpich().run(3, "-m", "hpcfl", "train", *TRAIN, "--out", "run.h5", timeout=60)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("hpcfl: ")] == [
        f"hpcfl: {SAYS['image']}hpcfl data prepare own --root data …"
    ]
    assert not Path("run.h5").exists()


def test_a_run_belongs_to_its_data(hpcfl, own):
    """The same name with other content is another run: it is neither finished nor continued."""
    train = ("train", *TRAIN, "--set=federation.rounds=1", "--out", "run.h5")
    assert hpcfl(*train).exit_code == 0
    assert "is finished" in hpcfl(*train).output
    np.savez("own.npz", x=layouts.images(60, 8, seed=1), y=np.arange(60) % 3)
    hpcfl("data", "prepare", "own", "--source", "own.npz", "--fresh")
    done = hpcfl(*train)
    assert (done.exit_code, "a run with other content of the same name (data)" in done.output) == (2, True)


def test_what_is_missing_says_how_to_make_it(hpcfl, own):
    with pytest.raises(BadInput, match=r"not prepared in data .*hpcfl data prepare cifar10 --root data"):
        load_dataset(DataConfig(name="cifar10"))
    with pytest.raises(
        BadInput,
        match=r"no such dataset; built in: spiral, synthetic; prepared in data .*: own; .*nearest: own",
    ):
        load_dataset(DataConfig(name="owm"))


def test_list_shows_what_is_prepared_and_what_is_damaged(hpcfl, own):
    shutil.copy(own, "data/other.h5")
    damage(Path("data/other.h5"), "label")
    said = hpcfl("data", "list").output
    assert "60 images 8×8×3 (60 train, 0 test), 3" in said
    assert "cannot use data/other.h5" in said
    assert "not prepared" in said


def test_leftovers_of_a_killed_process_are_swept(hpcfl, own):
    Path("data/own.h5.elsewhere-1.part").write_text("another host's")
    Path(f"data/own.h5.{platform.node()}-99999999.part").write_text("dead")
    Path(f"data/own.{platform.node()}-99999999.part").mkdir()
    assert hpcfl("data", "prepare", "own", "--source", "own.npz", "--fresh").exit_code == 0
    assert sorted(p.name for p in Path("data").iterdir()) == ["own.h5", "own.h5.elsewhere-1.part"]


def test_a_file_that_is_replaced_meanwhile_does_no_harm(hpcfl, own):
    """Who has the old one open keeps it, and verifies what he has."""
    old = open_prepared(own)
    np.savez("own.npz", x=layouts.images(60, 8, seed=1), y=np.arange(60) % 3)
    hpcfl("data", "prepare", "own", "--source", "own.npz", "--fresh")
    verify_images(old)
    np.testing.assert_array_equal(old.x, layouts.images(60, 8))
    assert open_prepared(own).checksum != old.checksum


@pytest.mark.parametrize("command", [["data", "list"], ["data", "prepare", "x"], ["train", *TRAIN]])
def test_a_directory_that_may_not_be_looked_into(hpcfl, own, monkeypatch, command):
    def closed(self, *rest):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", closed)
    done = hpcfl(*command)
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "Permission denied" in done.output


def test_the_command_that_helps_is_quoted_for_a_shell(hpcfl, own):
    """Spaces, quotes and semicolons in the path of the data."""
    root = "my data; rm -r 'x'"
    done = hpcfl("train", "--set=data.name=cifar10", f'--set=data.root="{root}"')
    assert shlex.split(done.output.partition("internet: ")[2])[-1] == root
    damage(own, "image")
    shutil.move(own.parent, root)
    done = hpcfl("train", "--set=data.name=own", *TRAIN[1:], f'--set=data.root="{root}"', "--out", "run.h5")
    assert done.exit_code == 2
    assert shlex.split(done.output.partition("--fresh: ")[2])[-3:] == ["--root", root, "…"]
