"""A user's own data: .npz, image folders, names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers import layouts
from tests.helpers.layouts import opened


def test_an_npz_with_words_for_labels_channels_first_and_a_test_part(prepare):
    x = layouts.images(6)
    words = np.array(["cat", "dog", "cat", "ant"])
    np.savez("own.npz", x=x[:4].transpose(0, 3, 1, 2), y=words, x_test=x[4:], y_test=words[:2])
    prepare("own", "--source", "own.npz")
    data = opened("own")
    np.testing.assert_array_equal(data.x, x)
    assert data.class_names == ("ant", "cat", "dog")
    assert (data.y.tolist(), data.num_train, data.writer_ids) == ([1, 2, 1, 0, 1, 2], 4, None)


def test_an_npz_with_writers(prepare):
    np.savez("own.npz", x=layouts.images(3, 8, 1), y=[7, 5, 7], writer=["b", "a", "b"])
    prepare("own", "--source", "own.npz")
    data = opened("own")
    assert data.writer_ids is not None
    assert (data.writer_ids.tolist(), data.class_names, data.shape) == ([1, 0, 1], ("5", "7"), (1, 8, 8))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((2, 4, 4), np.uint8)}, "own.npz has no y; it has x"),
        ({"x": np.zeros(2), "y": [0, 1]}, "x is float64 2; it must be numbers, one sample after the other"),
        ({"x": np.array([["a"]]), "y": [0]}, "x is <U1 1×1; it must be numbers"),
        ({"x": np.array([[1.0], [np.nan]]), "y": [0, 1]}, "x: sample 1 has values that are not finite"),
        ({"x": np.array([[1e99], [1.0]]), "y": [0, 1]}, "x: sample 0 has values that are not finite"),
        ({"x": np.array([[1 << 40]]), "y": [0]}, "x is int64 1×1; whole numbers must fit into 32 bits"),
        ({"x": np.zeros((2, 4, 4, 2), np.uint8), "y": [0, 1]}, "x is uint8 2×4×4×2; it must be"),
        ({"x": np.zeros((2, 0, 4), np.uint8), "y": [0, 1]}, "x is uint8 2×0×4; it must be numbers"),
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
        ({"x": np.zeros((0, 4, 4), np.uint8), "y": np.zeros(0, int)}, "no samples to train on"),
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
    assert data.class_names == ("class-0", "class-1", "class-2")
    np.testing.assert_array_equal(data.x[2:4], layouts.images(2, seed=1))
    assert (data.y.tolist(), data.num_train) == ([0, 0, 1, 1, 2, 2], 6)
    folder("parts/train")
    prepare("parts", "--source", "parts")
    assert (opened("parts").num_train, opened("parts").classes, len(opened("parts").y)) == (6, 3, 6)
    folder("parts/val", classes=2, each=1)
    prepare("parts", "--source", "parts", "--fresh")
    assert (opened("parts").num_train, opened("parts").y.tolist()) == (6, [0, 0, 1, 1, 2, 2, 0, 1])
    folder("parts/test", classes=1, each=1)
    Path("parts/test/class-0/._0.png").write_bytes(b"what a Mac leaves")
    prepare("parts", "--source", "parts", "--fresh")
    assert (opened("parts").num_train, opened("parts").y.tolist()) == (8, [0, 0, 1, 1, 2, 2, 0, 1, 0])
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
    prepare("own", "--source", "a.txt", code=2, says="--source a.txt: must be an .npz, a .csv, a directory")
    Image.fromarray(layouts.images(1, 40)[0]).save("photos/class-3/x.png")
    prepare("own", "--source", "photos", "--size", 16)
    assert opened("own").x.shape == (7, 16, 16, 3)


def test_a_class_folder_or_a_word_that_is_no_text(prepare):
    folder("photos")
    os.rename("photos/class-1", b"photos/caf\xe9")
    said = r"'caf\udce9' cannot be the name of a class or writer: it must be UTF-8 text without zero bytes"
    prepare("own", "--source", "photos", code=2, says=said)
    prepare("own", "--source", "torchvision:ImageFolder:photos", code=2, says=said)
    x = layouts.images(2, 4)
    np.savez("own.npz", x=x, y=["a\0b", "c"])
    prepare("own", "--source", "own.npz", code=2, says=r"'a\x00b' cannot be the name of a class or writer")
    np.savez("own.npz", x=x, y=np.array([97, 0x3FFFFF, 97, 98], "<u4").view("<U2"))
    prepare("own", "--source", "own.npz", code=2, says="cannot be the name of a class or writer")
    np.savez("own.npz", x=x, y=[0, 1], writer=["\ud800", "c"])
    prepare("own", "--source", "own.npz", code=2, says=r"'\ud800' cannot be the name of a class or writer")


def test_names_that_are_not_known_or_not_names(prepare):
    prepare(
        "cifar1O", code=2, says="'cifar1O' is not known (nearest: cifar10): give your own data with --source"
    )
    prepare("../x", "--source", "x.npz", code=2, says="'../x' cannot be a dataset's name")
    prepare("spiral", "--source", "x.npz", code=2, says="spiral and synthetic are taken")
    prepare("synthetic", code=2, says="synthetic is built in and needs no preparation: use it with data.name")
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
    prepare("emnist", "--source", "x.npz", code=2, says="emnist the name of a published dataset")


def test_what_is_there_is_verified_and_made_again_only_on_request(prepare):
    np.savez("own.npz", x=layouts.images(5, 8), y=np.arange(5))
    prepare("own", "--source", "own.npz", says="root/own.h5: 5 images 8×8×3 (5 train, 0 test), 5 classes")
    before = Path("root/own.h5").stat().st_ino
    prepare("own", says="root/own.h5 is there already")
    assert Path("root/own.h5").stat().st_ino == before
    np.savez("own.npz", x=layouts.images(6, 8), y=np.arange(6))
    prepare("own", "--source", "own.npz", "--fresh", says="6 images")
