"""Sources in their published layouts, whole and damaged."""

from __future__ import annotations

import gzip
import http.server
import json
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcfl.data.sources import mnist
from hpcfl.data.sources.registry import KNOWN_DATASETS
from hpcfl.utils.torchvision_loader import load_torchvision
from tests.helpers import layouts
from tests.helpers.layouts import opened


def test_cifar_from_its_archive_and_unpacked(prepare, tmp_path, monkeypatch):
    x, y = layouts.cifar10(tmp_path / "files", monkeypatch)
    prepare("cifar10", "--source", "files")
    data = opened("cifar10")
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.y, y)
    assert (data.num_train, data.class_names[3], data.shape) == (10, "class 3", (3, 32, 32))
    np.testing.assert_allclose(data.mean_C, x[:10].mean((0, 1, 2)) / 255)
    np.testing.assert_allclose(data.std_C, x[:10].std((0, 1, 2)) / 255)
    assert "cifar-10-python.tar.gz (md5 " in data.provenance["source"][0]

    with tarfile.open("files/cifar-10-python.tar.gz") as tar:
        tar.extractall("unpacked", filter="data")
    prepare("cifar10", "--source", "unpacked", "--fresh")
    assert opened("cifar10").checksum == data.checksum
    batch = Path("unpacked/cifar-10-batches-py/data_batch_3")
    batch.write_bytes(batch.read_bytes()[:-1] + b"x")
    Path("root/cifar10.h5").unlink()
    prepare(
        "cifar10",
        "--source",
        "unpacked",
        code=2,
        says="cifar-10-batches-py cannot be read (Dataset not found",
    )


def test_a_damaged_archive_and_a_missing_one_say_what_to_fetch(prepare, tmp_path, monkeypatch):
    layouts.cifar10(tmp_path / "files", monkeypatch)
    archive = tmp_path / "files" / "cifar-10-python.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-100])
    said = prepare(
        "cifar10", "--source", "files", code=2, says="cifar-10-python.tar.gz is damaged: its md5 is"
    )
    assert "fetch https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz again and put it there" in said
    monkeypatch.setattr(load_torchvision().datasets.CIFAR10, "tgz_md5", layouts.md5(archive))
    prepare("cifar10", "--source", archive, code=2, says="cannot be unpacked")
    archive.unlink()
    prepare(
        "cifar10", "--source", "files", code=2, says="files has no cifar-10-python.tar.gz: fetch https://"
    )
    prepare(
        "cifar10", "--source", "nowhere", code=2, says="--source nowhere: there is no such file or directory"
    )


@pytest.mark.parametrize(("name", "kind"), [("fmnist", "FashionMNIST"), ("mnist", "MNIST")])
def test_mnist_compressed_in_either_place_and_unpacked(prepare, tmp_path, monkeypatch, name, kind):
    x, y = layouts.mnist(tmp_path / "files" / kind / "raw", monkeypatch, kind)
    prepare(name, "--source", "files")
    data = opened(name)
    np.testing.assert_array_equal(data.x[..., 0], x)
    np.testing.assert_array_equal(data.y, y)
    assert (data.num_train, data.shape, data.classes) == (12, (1, 28, 28), 10)
    prepare(name, "--source", f"files/{kind}/raw", "--fresh")
    assert opened(name).checksum == data.checksum
    for path in Path(f"files/{kind}/raw").iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    prepare(name, "--source", "files", "--fresh")
    assert opened(name).checksum == data.checksum
    labels = Path(f"files/{kind}/raw/train-labels-idx1-ubyte")
    labels.write_bytes(labels.read_bytes()[:-3])
    Path(f"root/{name}.h5").unlink()
    prepare(name, "--source", "files", code=2, says="cannot be read")


def test_fashion_mnist_of_debian_is_found_and_verified_by_its_own_sums(prepare, tmp_path, monkeypatch):
    x, _ = layouts.mnist(tmp_path / "debian", monkeypatch)
    sums = tmp_path / "md5sums"
    sums.write_text(
        "".join(f"{layouts.md5(path)}  usr/share/{path.name}\n" for path in (tmp_path / "debian").iterdir())
    )
    published = [(name, "0" * 32) for name, _ in load_torchvision().datasets.FashionMNIST.resources]
    monkeypatch.setattr(load_torchvision().datasets.FashionMNIST, "resources", published)
    monkeypatch.setattr(mnist, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(mnist, "DEBIAN_SUMS", sums)
    prepare("fmnist")
    np.testing.assert_array_equal(opened("fmnist").x[..., 0], x)
    Path("root/fmnist.h5").unlink()
    broken = tmp_path / "debian" / "t10k-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes() + b"x")
    prepare("fmnist", code=2, says="t10k-images-idx3-ubyte.gz is damaged: its md5 is")


def test_emnist_stands_upright_and_has_no_empty_class(prepare, tmp_path, monkeypatch):
    x, y = layouts.emnist(tmp_path / "files", monkeypatch)
    prepare("emnist-letters", "--source", "files/gzip.zip")
    data = opened("emnist-letters")
    np.testing.assert_array_equal(data.x[..., 0], x)
    np.testing.assert_array_equal(data.y, y - 1)
    assert (data.class_names[0], data.classes, data.num_train) == ("a", 26, 40)


def test_every_split_of_emnist_is_known_and_emnist_means_all(prepare, tmp_path, monkeypatch):
    splits = load_torchvision().datasets.EMNIST.splits
    assert {f"emnist-{split}" for split in splits} == {
        name for name in KNOWN_DATASETS if name.startswith("emnist")
    }
    layouts.emnist(tmp_path / "files", monkeypatch)
    # the tiny zip holds one split only: the first of all is asked for first
    prepare("emnist", "--source", "files", code=2, says="There is no item named 'gzip/emnist-byclass-train")


def test_svhn(prepare, tmp_path, monkeypatch):
    x, y = layouts.svhn(tmp_path / "files", monkeypatch)
    prepare("svhn", "--source", "files")
    data = opened("svhn")
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.y, y)
    assert data.num_train == 10
    prepare("svhn2", "--source", "torchvision:SVHN:files")
    assert opened("svhn2").x.tobytes() == data.x.tobytes()
    for path in Path("root").glob("*.h5"):
        path.unlink()
    Path("files/test_32x32.mat").write_bytes(b"no matrix")
    prepare("svhn", "--source", "files", code=2, says="test_32x32.mat is damaged")
    prepare("svhn2", "--source", "torchvision:SVHN:files", code=2, says="torchvision cannot open it in files")


def test_flowers_are_cut_to_squares_and_train_includes_validation(prepare, tmp_path, monkeypatch):
    layouts.flowers102(tmp_path / "files", monkeypatch)
    prepare("flowers102", "--source", "files")
    data = opened("flowers102")
    assert (data.x.shape, data.num_train) == ((7, 64, 64, 3), 4)
    assert data.class_names == ("pink primrose", "hard-leaved pocket orchid")
    assert data.y.tolist() == [0, 1, 0, 0, 1, 0, 1]
    prepare("flowers102", "--source", "files", "--size", 32, "--fresh")
    assert opened("flowers102").shape == (3, 32, 32)


def test_tiny_imagenet_has_train_and_labelled_validation_images(prepare, tmp_path, monkeypatch):
    layouts.tinyimagenet(tmp_path / "files", monkeypatch)
    prepare("tinyimagenet", "--source", "files")
    data = opened("tinyimagenet")
    assert data.class_names == ("goldfish", "toad")
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert (data.x.shape, data.num_train) == ((8, 64, 64, 3), 6)
    Path("files/tiny-imagenet-200.zip").unlink()
    prepare("tinyimagenet", "--source", "files", "--fresh")
    assert opened("tinyimagenet").checksum == data.checksum
    Path("root/tinyimagenet.h5").unlink()
    image = Path("files/tiny-imagenet-200/train/n01/images/n01_1.JPEG")
    whole = image.read_bytes()
    image.write_bytes(whole[: len(whole) // 2])
    prepare(
        "tinyimagenet",
        "--source",
        "files",
        code=2,
        says="n01_1.JPEG cannot be read as an image (image file is tr",
    )
    image.write_bytes(whole)
    Path("files/tiny-imagenet-200/val/images/val_0.JPEG").unlink()
    prepare("tinyimagenet", "--source", "files", code=2, says="val_0.JPEG is missing")


def test_leaf_keeps_its_writers(prepare, tmp_path):
    layouts.femnist(tmp_path / "files")
    prepare("femnist", "--source", "files")
    data = opened("femnist")
    assert (data.num_train, data.shape, data.class_names) == (4, (1, 28, 28), ("0", "1", "z"))
    assert data.writer_ids is not None
    assert data.writer_ids.tolist() == [1, 1, 0, 0, 1, 0]  # f0000_14 is number 0
    np.testing.assert_array_equal(data.x[:2, :, :, 0], layouts.images(2, 28, 1, 0))
    with h5py.File("root/femnist.h5") as file:
        assert file["writers"].asstr()[()].tolist() == ["f0000_14", "f0001_41"]
    Path("root/femnist.h5").unlink()
    broken = Path("files/test/all_data_0.json")
    broken.write_text(broken.read_text()[:-20])
    prepare("femnist", "--source", "files", code=2, says="all_data_0.json is no LEAF file, or a damaged one")
    prepare("femnist", code=2, says="clone https://github.com/TalwalkarLab/leaf")
    Path("empty").mkdir()
    prepare("femnist", "--source", "empty", code=2, says="empty has no LEAF files")


@pytest.mark.parametrize(
    ("writer", "label", "pixel", "says"),
    [
        ("w", 10**30, 0, "writer w has labels that are not a list of integers"),
        ("w", 1 << 63, 0, "writer w has labels that are not a list of integers"),
        ("w", 1.7, 0, "writer w has labels that are not a list of integers"),
        ("w", [1], 0, "writer w has labels that are not a list of integers"),
        ("w", 62, 0, "labels run from 62 to 62, but there are 62 classes"),
        ("w", 1, 10**400, "all_data_0.json is no LEAF file, or a damaged one (int too large to convert"),
        ("\ud800", 1, 0, r"'\ud800' cannot be the name of a class or writer"),
    ],
)
def test_numbers_and_names_of_leaf_that_are_too_much(prepare, writer, label, pixel, says):
    data = {writer: {"x": [[pixel] * 784], "y": [label]}}
    Path("all_data_0.json").write_text(json.dumps({"users": [writer], "num_samples": [1], "user_data": data}))
    prepare("femnist", "--source", ".", code=2, says=says)


@pytest.fixture
def server(tmp_path: Path):
    """Serves a directory over HTTP and yields its address and what was asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *words: object) -> None:
            pass

    (tmp_path / "served").mkdir()
    handler: Callable = partial(Handler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/", asked
        httpd.shutdown()
        thread.join()


def test_downloads_are_kept_verified_and_not_repeated(prepare, tmp_path, monkeypatch, server):
    url, asked = server
    x, _ = layouts.mnist(tmp_path / "served", monkeypatch)
    monkeypatch.setattr(load_torchvision().datasets.FashionMNIST, "mirrors", [f"{url}nowhere/", url])
    prepare("fmnist")
    np.testing.assert_array_equal(opened("fmnist").x[..., 0], x)
    assert len(asked) == 8  # each file from the first mirror, which has it not, and the second
    assert len(list(Path("root/sources").iterdir())) == 4
    prepare("fmnist", "--fresh")
    assert len(asked) == 8


def test_a_failed_download_says_what_to_do(prepare, tmp_path, monkeypatch, server):
    url, _ = server
    layouts.cifar10(tmp_path / "served", monkeypatch)
    kind = load_torchvision().datasets.CIFAR10
    monkeypatch.setattr(kind, "url", f"{url}missing.tar.gz")
    said = prepare("cifar10", code=2, says=f"cannot download {url}missing.tar.gz (")
    assert "by other means, put it into root/sources and run this again" in said
    monkeypatch.setattr(kind, "url", f"{url}{kind.filename}")
    monkeypatch.setattr(kind, "tgz_md5", "0" * 32)
    prepare("cifar10", code=2, says="its md5 is")
    assert not list(Path("root/sources").iterdir())
    monkeypatch.setattr(kind, "url", "http://127.0.0.1:9/x")
    prepare("cifar10", code=2, says="Connection refused")
