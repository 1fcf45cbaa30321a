"""Sources in their published layouts, whole and damaged."""

from __future__ import annotations

import gzip
import http.server
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from hpcfl.data.prepared import open_prepared, verify
from hpcfl.data.sources import mnist
from hpcfl.data.sources.known import KNOWN
from hpcfl.vision import torchvision
from tests.data import layouts


@pytest.fixture(autouse=True)
def _no_debian(monkeypatch, tmp_path):
    monkeypatch.setattr(mnist, "DEBIAN", tmp_path / "no-package")


@pytest.fixture
def prepare(hpcfl):
    """Returns `prepare(*arguments, says="", code=0)`: runs the command; what it may leave is checked."""

    def run(*arguments: object, says: str = "", code: int = 0) -> str:
        done = hpcfl("data", "prepare", "--root", "root", *arguments)
        assert done.exit_code == code, done.output
        assert says in done.output
        if code:
            assert done.output.startswith("hpcfl: ")
            assert done.output.count("\n") == 1
            assert not done.exception or isinstance(done.exception, SystemExit)
        left = {path.name for path in Path("root").iterdir()} if Path("root").exists() else set()
        assert not [name for name in left if name.endswith(".part")]
        if code:
            assert not [name for name in left if name.endswith(".h5")]
        return done.output

    return run


def opened(name: str):
    data = open_prepared(Path("root") / f"{name}.h5")
    verify(data)
    return data


def test_cifar_from_its_archive_and_unpacked(prepare, tmp_path, monkeypatch):
    x, y = layouts.cifar10(tmp_path / "files", monkeypatch)
    prepare("cifar10", "--source", "files")
    data = opened("cifar10")
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.y, y)
    assert (data.train, data.names[3], data.shape) == (10, "class 3", (3, 32, 32))
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
    monkeypatch.setattr(torchvision().datasets.CIFAR10, "tgz_md5", layouts.md5(archive))
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
    assert (data.train, data.shape, data.classes) == (12, (1, 28, 28), 10)
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
    published = [(name, "0" * 32) for name, _ in torchvision().datasets.FashionMNIST.resources]
    monkeypatch.setattr(torchvision().datasets.FashionMNIST, "resources", published)
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
    assert (data.names[0], data.classes, data.train) == ("a", 26, 40)


def test_every_split_of_emnist_is_known_and_emnist_means_all(prepare, tmp_path, monkeypatch):
    splits = torchvision().datasets.EMNIST.splits
    assert {f"emnist-{split}" for split in splits} == {name for name in KNOWN if name.startswith("emnist")}
    layouts.emnist(tmp_path / "files", monkeypatch)
    # the tiny zip holds one split only: the first of all is asked for first
    prepare("emnist", "--source", "files", code=2, says="There is no item named 'gzip/emnist-byclass-train")


def test_svhn(prepare, tmp_path, monkeypatch):
    x, y = layouts.svhn(tmp_path / "files", monkeypatch)
    prepare("svhn", "--source", "files")
    data = opened("svhn")
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.y, y)
    assert data.train == 10
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
    assert (data.x.shape, data.train) == ((7, 64, 64, 3), 4)
    assert data.names == ("pink primrose", "hard-leaved pocket orchid")
    assert data.y.tolist() == [0, 1, 0, 0, 1, 0, 1]
    prepare("flowers102", "--source", "files", "--size", 32, "--fresh")
    assert opened("flowers102").shape == (3, 32, 32)


def test_tiny_imagenet_has_train_and_labelled_validation_images(prepare, tmp_path, monkeypatch):
    layouts.tinyimagenet(tmp_path / "files", monkeypatch)
    prepare("tinyimagenet", "--source", "files")
    data = opened("tinyimagenet")
    assert data.names == ("goldfish", "toad")
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert (data.x.shape, data.train) == ((8, 64, 64, 3), 6)
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
    assert (data.train, data.shape, data.names) == (4, (1, 28, 28), ("0", "1", "z"))
    assert data.writer is not None
    assert data.writer.tolist() == [1, 1, 0, 0, 1, 0]  # f0000_14 is number 0
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


def test_an_npz_with_words_for_labels_channels_first_and_a_test_part(prepare):
    x = layouts.images(6)
    words = np.array(["cat", "dog", "cat", "ant"])
    np.savez("own.npz", x=x[:4].transpose(0, 3, 1, 2), y=words, x_test=x[4:], y_test=words[:2])
    prepare("own", "--source", "own.npz")
    data = opened("own")
    np.testing.assert_array_equal(data.x, x)
    assert data.names == ("ant", "cat", "dog")
    assert (data.y.tolist(), data.train, data.writer) == ([1, 2, 1, 0, 1, 2], 4, None)


def test_an_npz_with_writers(prepare):
    np.savez("own.npz", x=layouts.images(3, 8, 1), y=[7, 5, 7], writer=["b", "a", "b"])
    prepare("own", "--source", "own.npz")
    data = opened("own")
    assert data.writer is not None
    assert (data.writer.tolist(), data.names, data.shape) == ([1, 0, 1], ("5", "7"), (1, 8, 8))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((2, 4, 4), np.uint8)}, "own.npz has no y; it has x"),
        ({"x": np.zeros((2, 4, 4)), "y": [0, 1]}, "x is float64 2×4×4; it must be uint8 images"),
        ({"x": np.zeros((2, 4, 4, 2), np.uint8), "y": [0, 1]}, "x is uint8 2×4×4×2; it must be"),
        ({"x": np.zeros((2, 0, 4), np.uint8), "y": [0, 1]}, "x is uint8 2×0×4; it must be"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0]}, "y must be one integer or word for each of the 2"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0.5, 1]}, "y must be one integer or word"),
        (
            {"x": np.zeros((2, 4, 4), np.uint8), "y": np.array([b"a", b"\xff"])},
            "y must be one integer or word",
        ),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0, 1], "y_test": [0]}, "has y_test, but no x_test"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0, 1], "labels": [0]}, "what is labels? Known are x, y"),
        (
            {
                "x": np.zeros((2, 4, 4, 3), np.uint8),
                "y": [0, 1],
                "x_test": np.zeros((1, 4, 4), np.uint8),
                "y_test": [0],
            },
            "x and x_test must have equally many channels",
        ),
        (
            {
                "x": np.zeros((2, 4, 4), np.uint8),
                "y": [0, 1],
                "x_test": np.zeros((1, 4, 4), np.uint8),
                "y_test": ["a"],
            },
            "y and y_test must both be integers, or both words",
        ),
        (
            {"x": np.zeros((2, 4, 4), np.uint8), "y": [0, 1], "writer": [0]},
            "writer must be one integer or word for each",
        ),
        ({"x": np.zeros((0, 4, 4), np.uint8), "y": np.zeros(0, int)}, "no images to train on"),
        ({"x": np.array([None, 1], dtype=object), "y": [0, 1]}, "own.npz: not an .npz of plain arrays"),
    ],
)
def test_a_wrong_npz(prepare, arrays, says):
    np.savez("own.npz", **arrays)
    prepare("own", "--source", "own.npz", code=2, says=says)


def test_a_truncated_npz_and_one_with_a_flipped_bit(prepare):
    np.savez("own.npz", x=layouts.images(50), y=np.arange(50) % 5)
    whole = Path("own.npz").read_bytes()
    Path("own.npz").write_bytes(whole[:-50])
    prepare("own", "--source", "own.npz", code=2, says="own.npz: a damaged .npz (File is not a zip file)")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    Path("own.npz").write_bytes(flipped)
    prepare("own", "--source", "own.npz", code=2, says="Bad CRC-32")


def folder(top: str, classes: int = 3, each: int = 2, **more: int) -> None:
    for k in range(classes):
        for number, image in enumerate(layouts.images(each, seed=k, **more)):
            path = Path(top) / f"class-{k}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


def test_an_image_folder_with_and_without_parts(prepare):
    folder("photos")
    Path("photos/.hidden").mkdir()
    prepare("own", "--source", "photos")
    data = opened("own")
    assert data.names == ("class-0", "class-1", "class-2")
    np.testing.assert_array_equal(data.x[2:4], layouts.images(2, seed=1))
    assert (data.y.tolist(), data.train) == ([0, 0, 1, 1, 2, 2], 6)
    folder("parts/train")
    prepare("parts", "--source", "parts")
    assert (opened("parts").train, opened("parts").classes, len(opened("parts").y)) == (6, 3, 6)
    folder("parts/val", classes=2, each=1)
    prepare("parts", "--source", "parts", "--fresh")
    assert (opened("parts").train, opened("parts").y.tolist()) == (6, [0, 0, 1, 1, 2, 2, 0, 1])
    folder("parts/test", classes=1, each=1)
    Path("parts/test/class-0/._0.png").write_bytes(b"what a Mac leaves")
    prepare("parts", "--source", "parts", "--fresh")
    assert (opened("parts").train, opened("parts").y.tolist()) == (8, [0, 0, 1, 1, 2, 2, 0, 1, 0])
    Path("photos/.hidden").rmdir()
    prepare("again", "--source", "torchvision:ImageFolder:photos")
    assert opened("again").checksum == data.checksum
    folder("gray", channels=1)
    prepare("gray", "--source", "gray")
    assert opened("gray").shape == (1, 32, 32)


def test_an_image_folder_with_mistakes(prepare):
    Path("empty").mkdir()
    prepare(
        "own", "--source", "empty", code=2, says="empty has no directories: an image folder has one per class"
    )
    folder("photos")
    Path("photos/class-3").mkdir()
    prepare("own", "--source", "photos", code=2, says="photos/class-3 has no images")
    Path("photos/class-3/x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    prepare("own", "--source", "photos", code=2, says="photos/class-3/x.png cannot be read as an image")
    Image.fromarray(layouts.images(1, 40)[0]).save("photos/class-3/x.png")
    said = "images of mixed sizes: the first is 32×32×3, number 7 is 40×40×3; give --size"
    prepare("own", "--source", "photos", code=2, says=said)
    Image.fromarray(np.zeros((32, 32), np.uint16)).save("photos/class-3/x.png")
    prepare("own", "--source", "photos", code=2, says="more than 8 bits per channel")
    folder("mixed/train")
    folder("mixed")
    prepare(
        "own",
        "--source",
        "mixed",
        code=2,
        says="mixed has train and class-0: either parts (train, val, test) or",
    )
    Path("a.txt").write_text("")
    prepare("own", "--source", "a.txt", code=2, says="--source a.txt: must be an .npz, a directory")
    Image.fromarray(layouts.images(1, 40)[0]).save("photos/class-3/x.png")
    prepare("own", "--source", "photos", "--size", 16)
    assert opened("own").x.shape == (7, 16, 16, 3)


def test_names_that_are_not_known_or_not_names(prepare):
    prepare(
        "cifar1O", code=2, says="'cifar1O' is not known (nearest: cifar10): give your own data with --source"
    )
    prepare("../x", "--source", "x.npz", code=2, says="'../x' cannot be a dataset's name")
    prepare("spiral", code=2, says="spiral is taken")
    prepare(
        "x",
        "--source",
        "torchvision:CIFAR1",
        code=2,
        says="torchvision has no dataset CIFAR1 (nearest: CIFAR1",
    )
    prepare(
        "x", "--source", "torchvision:FakeData", code=2, says="torchvision:FakeData: cannot be read this way"
    )
    prepare("x", "--source", "torchvision:EMNIST", code=2, says="see emnist-byclass")
    prepare("emnist", "--source", "x.npz", code=2, says="emnist is six datasets; give --source x.npz a name")


def test_what_is_there_is_verified_and_made_again_only_on_request(prepare):
    np.savez("own.npz", x=layouts.images(5, 8), y=np.arange(5))
    prepare("own", "--source", "own.npz", says="root/own.h5: 5 images 8×8×3 (5 train, 0 test), 5 classes")
    before = Path("root/own.h5").stat().st_ino
    prepare("own", says="root/own.h5 is there already")
    assert Path("root/own.h5").stat().st_ino == before
    np.savez("own.npz", x=layouts.images(6, 8), y=np.arange(6))
    prepare("own", "--source", "own.npz", "--fresh", says="6 images")


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
    monkeypatch.setattr(torchvision().datasets.FashionMNIST, "mirrors", [f"{url}nowhere/", url])
    prepare("fmnist")
    np.testing.assert_array_equal(opened("fmnist").x[..., 0], x)
    assert len(asked) == 8  # each file from the first mirror, which has it not, and the second
    assert len(list(Path("root/sources").iterdir())) == 4
    prepare("fmnist", "--fresh")
    assert len(asked) == 8


def test_a_failed_download_says_what_to_do(prepare, tmp_path, monkeypatch, server):
    url, _ = server
    layouts.cifar10(tmp_path / "served", monkeypatch)
    kind = torchvision().datasets.CIFAR10
    monkeypatch.setattr(kind, "url", f"{url}missing.tar.gz")
    said = prepare("cifar10", code=2, says=f"cannot download {url}missing.tar.gz (")
    assert "by other means, put it into root/sources and run this again" in said
    monkeypatch.setattr(kind, "url", f"{url}{kind.filename}")
    monkeypatch.setattr(kind, "tgz_md5", "0" * 32)
    prepare("cifar10", code=2, says="its md5 is")
    assert not list(Path("root/sources").iterdir())
    monkeypatch.setattr(kind, "url", "http://127.0.0.1:9/x")
    prepare("cifar10", code=2, says="Connection refused")
