"""A disk that fills up while a dataset is prepared: nothing wrong is put in place."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcfl.data import write_prepared
from hpcfl.data.prepared_file import verify_images
from tests.helpers import layouts
from tests.helpers.disk import largest_file
from tests.helpers.layouts import opened


@pytest.mark.parametrize("side", [4, 16], ids=["images in one buffer of HDF5", "images written directly"])
def test_a_full_disk_is_one_sentence_wherever_it_happens(prepare, side):
    x, y = layouts.images(500, side), np.arange(500) % 7
    np.savez("own.npz", x=x, y=y)
    prepare("own", "--source", "own.npz")
    size = Path("root/own.h5").stat().st_size
    Path("root/own.h5").unlink()
    for limit in [0, 100, x.nbytes // 2, x.nbytes, *range(x.nbytes + 500, size, 1500), size - 1]:
        with largest_file(limit):
            prepare("own", "--source", "own.npz", code=2, says="cannot prepare own: File too large: root/own")
    with largest_file(size):
        prepare("own", "--source", "own.npz")
    data = opened("own")
    verify_images(data)
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.y, y)


@pytest.mark.parametrize("dataset", ["y", "names"])
def test_a_disk_that_is_full_for_a_moment(prepare, monkeypatch, dataset):
    """HDF5 fails when it closes the dataset, and all that follows succeeds: the labels would be zeros."""
    x = layouts.images(2000, 8)
    np.savez("own.npz", x=x, y=np.arange(2000) % 7)
    write = h5py.Group.__setitem__

    def full(group, name, values):
        with largest_file(x.nbytes if name == dataset else 1 << 30):
            write(group, name, values)

    monkeypatch.setattr(h5py.Group, "__setitem__", full)
    prepare("own", "--source", "own.npz", code=2, says="cannot prepare own: File too large: root/own.h5")


@pytest.mark.parametrize("place", ["image", "label"])
def test_a_file_that_differs_from_memory_is_not_put_in_place(prepare, monkeypatch, place):
    x, y = layouts.images(50, 8), np.arange(50) + 1000
    np.savez("own.npz", x=x, y=y)
    convert = write_prepared.convert

    def damage(raw, size, path, *rest):
        checksum = convert(raw, size, path, *rest)
        content = path.read_bytes()
        found = x.tobytes() if place == "image" else np.arange(50).tobytes()
        position = content.index(found) + 100
        path.write_bytes(content[:position] + b"\x55" + content[position + 1 :])
        return checksum

    monkeypatch.setattr(write_prepared, "convert", damage)
    prepare("own", "--source", "own.npz", code=2, says="what was written is not what is read back: root/own")
