"""Datasets as the papers' code prepares them, under names of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hpcfl.config.loading import load_config
from hpcfl.data.sources.registry import KNOWN_DATASETS, PUBLISHED_FORMS, prepare_command
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.reader import read_log
from tests.helpers import layouts
from tests.helpers.layouts import opened

FEW = ("federation.clients=2", "partition.name=iid", "data.root=root", "models.list=['mlp_64']")


def test_flowers_are_squashed(prepare, tmp_path, monkeypatch):
    """Both sides are scaled to 64: what the crop cuts off at the longer side is there."""
    layouts.flowers102(tmp_path / "files", monkeypatch)
    said = prepare("flowers102", "--source", "files", "--resize", "squash", "--as", "flowers102-squash")
    assert "root/flowers102-squash.h5: 7 images 64×64×3" in said
    assert "; flowers102, squashed, from files; use it with data.name = 'flowers102-squash'" in said
    squashed = opened("flowers102-squash")
    prepare("flowers102", "--source", "files")
    assert (squashed.x.shape, squashed.num_train) == (opened("flowers102").x.shape, 4)
    assert not np.array_equal(squashed.x, opened("flowers102").x)
    assert (squashed.original, squashed.provenance["resize"]) == ("flowers102", "squash")
    with Image.open(_photo("files", 1)) as photo:
        want = np.asarray(photo.resize((64, 64), Image.Resampling.BILINEAR))
    assert np.abs(squashed.x[0].astype(int) - want).max() <= 1


def _photo(folder: str, number: int) -> Path:
    import tarfile

    with tarfile.open(Path(folder) / "102flowers.tgz") as tar:
        tar.extractall("photos", filter="data")
    return Path(f"photos/jpg/image_{number:05d}.jpg")


def test_tiny_imagenet_can_be_its_train_part(prepare, tmp_path, monkeypatch):
    layouts.tinyimagenet(tmp_path / "files", monkeypatch)
    said = prepare("tinyimagenet", "--source", "files", "--part", "train", "--as", "tinyimagenet-train")
    assert "6 images 64×64×3 (6 train, 0 test), 2 classes; tinyimagenet, train part alone" in said
    prepare("tinyimagenet", "--source", "files")
    part, whole = opened("tinyimagenet-train"), opened("tinyimagenet")
    np.testing.assert_array_equal(part.x, whole.x[:6])
    assert (part.y.tolist(), part.class_names) == (whole.y[:6].tolist(), whole.class_names)
    np.testing.assert_array_equal(part.mean_C, whole.mean_C)


def test_what_depends_on_the_dataset_knows_the_original(prepare, tmp_path, monkeypatch, hpcfl):
    """γ is Tiny-ImageNet's, digits are not flipped; `data list` and `data show` say what it is."""
    layouts.tinyimagenet(tmp_path / "files", monkeypatch)
    prepare("tinyimagenet", "--source", "files", "--part", "train", "--as", "mine")
    layouts.mnist(tmp_path / "digits", monkeypatch, "MNIST")
    prepare("mnist", "--source", "digits", "--as", "digits")
    settings = [*FEW, "partition.min_samples=1", "partition.train_fraction=0.5"]
    plan = plan_run(load_config(None, [*settings, "data.name=mine", "method.name=protonorm"]))
    assert plan.spec.scale == 400.0  # type: ignore[attr-defined]
    assert not plan.has_characters
    assert plan.checksums["original"] == "tinyimagenet"
    assert plan_run(load_config(None, [*settings, "data.name=digits"])).has_characters
    listed = hpcfl("data", "list", "--root", "root").output
    assert "from tinyimagenet" in listed
    assert "train part alone" in listed
    chosen = [f"--set={setting}" for setting in settings]
    shown = hpcfl("data", "show", "mine", "--root", "root", "--out=a.csv", *chosen).output
    assert "mine: 6 images 64×64×3 (6 train, 0 test), 2 classes; tinyimagenet, train part alone" in shown
    done = hpcfl("train", *chosen, "--set=data.name=mine", "--set=federation.rounds=1", "--out=a.h5")
    assert done.exit_code == 0, done.output
    assert read_log("a.h5").attributes["checksum_original"] == "tinyimagenet"


def test_a_dataset_by_its_own_name_has_no_further_checksum(prepare, tmp_path, monkeypatch):
    layouts.cifar10(tmp_path / "files", monkeypatch)
    prepare("cifar10", "--source", "files")
    plan = plan_run(load_config(None, [*FEW, "data.name=cifar10", "federation.clients=1"]))
    assert "original" not in plan.checksums


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cifar10", "--resize", "squash"), "--resize squash: all images of cifar10 are squares"),
        (("mine", "--source", "x", "--resize", "squash"), "--resize squash: needs --size"),
        (("flowers102", "--part", "train"), "--part train: only for tinyimagenet, not for flowers102"),
        (("mine", "--source", "x", "--part", "train"), "--part train: only for tinyimagenet, not for mine"),
        (("emnist", "--as", "letters"), "emnist is six datasets; --as letters is one name"),
        (("cifar10", "--as", "cifar100"), "--as cifar100: that is the name of another dataset"),
        (("cifar10", "--as", "spiral"), "'spiral' cannot be a dataset's name"),
        (("cifar10", "--as", "a/b"), "'a/b' cannot be a dataset's name"),
        (("mine", "--source", "x", "--as", "y"), "--as y: mine is your own data"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(prepare, arguments, says):
    prepare(*arguments, code=2, says=says)


def test_a_file_that_was_made_otherwise_is_not_taken_for_it(prepare, tmp_path, monkeypatch, hpcfl):
    layouts.flowers102(tmp_path / "files", monkeypatch)
    prepare("flowers102", "--source", "files")
    for arguments in (["flowers102", "--resize=squash"], ["flowers102", "--size=32"], ["mnist", "--as=f"]):
        if arguments[0] == "mnist":
            Path("root/flowers102.h5").rename("root/f.h5")
        done = hpcfl("data", "prepare", "--root", "root", "--source", "files", *arguments)
        assert done.exit_code == 2
        assert "is there already, prepared otherwise: 7 images 64×64×3" in done.output
        assert done.output.count("\n") == 1


def test_a_published_form_that_is_missing_is_named_with_its_command(hpcfl):
    for name, (original, options) in PUBLISHED_FORMS.items():
        assert original in KNOWN_DATASETS
        assert name not in KNOWN_DATASETS
        with pytest.raises(
            BadInput, match=f"run once, .* hpcfl data prepare {original} {options} --as {name} --root"
        ):
            plan_run(load_config(None, [f"data.name={name}"]))
        assert f"{original} {options}" in hpcfl("catalog").output
    assert (prepare_command("cifar10"), prepare_command("mine")) == ("cifar10", "")
