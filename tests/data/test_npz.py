"""Damaged and hostile .npz files: each is one sentence, and none makes hpcfl allocate what it declares."""

from __future__ import annotations

import io
import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hpcfl.data.npz import read_npz
from hpcfl.errors import BadInput
from tests.helpers import layouts


def member(shape: tuple[int, ...] = (2, 4, 4), dtype: str = "|u1", data: bytes = bytes(32)) -> bytes:
    """Returns an array in numpy's format; its header may declare anything."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "descr": dtype, "fortran_order": False})
    return stream.getvalue() + data


def archive(compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return stream.getvalue()


def encrypted(content: bytes) -> bytes:
    """Sets the flag of encryption, in the members' headers and in the directory."""
    data = bytearray(content)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = -1
        while (position := data.find(signature, position + 1)) >= 0:
            data[position + offset] |= 1
    return bytes(data)


def hiding(content: bytes) -> bytes:
    """Flips a bit in the directory: the first entry then has a long comment, with the other entries in it."""
    data = bytearray(content)
    data[data.index(b"PK\x01\x02") + 33] |= 0x80
    return bytes(data)


CASES = {
    "encrypted": (encrypted(archive(x=member())), "own.npz: a damaged .npz ('x.npy' is encrypted)"),
    "bz2": (archive(zipfile.ZIP_BZIP2, x=member()), "own.npz: not an .npz of plain arrays"),
    "a hidden member": (
        hiding(archive(y=member((2,), data=bytes(2)), x=member(), writer=member((2,), data=bytes(2)))),
        "own.npz: a damaged .npz (its directory has another number of members)",
    ),
    "oversized": (archive(x=member((10**14,))), "a damaged .npz ('x.npy' declares an array of another size)"),
    "more than an array": (archive(x=member() + b"more"), "'x.npy' declares an array of another size"),
    "no array": (archive(x=b"hello"), "not an .npz of plain arrays"),
    "an unclosed header": (archive(x=member().replace(b"(2, 4,", b"((2,4,")), "not an .npz of plain arrays"),
    "words of no length": (archive(x=member((10**9,), "<U0", b"")), "not an .npz of plain arrays"),
    "a negative shape": (archive(x=member((-8, -4))), "not an .npz of plain arrays"),
    "an empty file": (b"", "own.npz: not an .npz of plain arrays"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_npz_is_one_sentence(prepare, case):
    content, says = CASES[case]
    Path("own.npz").write_bytes(content)
    prepare("own", "--source", "own.npz", code=2, says=says)


def test_a_size_on_which_header_and_directory_agree_is_checked(tmp_path, monkeypatch):
    """Both declare 3 GiB, but the file has some hundred bytes: no memory is allocated for them."""
    content = bytearray(archive(zipfile.ZIP_STORED, x=member((3 << 30,))))
    size = len(member((3 << 30,), data=b"")) + (3 << 30)
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        position = content.index(signature) + offset
        content[position : position + 4] = size.to_bytes(4, "little")
    (tmp_path / "x.npz").write_bytes(content)
    allocated: list[int] = []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: allocated.append(1))
    with pytest.raises(BadInput, match=r"^x\.npz: a damaged \.npz \('x\.npy' declares an array of another"):
        read_npz(tmp_path / "x.npz", "x.npz")
    assert not allocated


def test_an_array_that_does_not_fit_in_memory(tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", x=np.zeros(3))

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np.lib.format, "read_array", full)
    with pytest.raises(BadInput, match=r"^x\.npz: its arrays do not fit in memory$"):
        read_npz(tmp_path / "x.npz", "x.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path, save):
    arrays = {
        "x": layouts.images(3, 5),
        "transposed": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "nothing": np.zeros((0, 4), np.int32),
        "scalar": np.array(7),
        "words": np.array(["a", "bc", ""]),
        "zeros": np.zeros((1000, 1000)),
    }
    save(tmp_path / "all.npz", **arrays)
    got = read_npz(tmp_path / "all.npz", "all.npz")
    assert got.keys() == arrays.keys()
    for name, values in arrays.items():
        assert got[name].dtype == values.dtype
        np.testing.assert_array_equal(got[name], values)


def test_a_pipe_is_not_waited_for(prepare):
    os.mkfifo("own.npz")
    prepare("own", "--source", "own.npz", code=2, says="own.npz: not a regular file")


def test_mutated_files_are_read_as_written_or_refused(tmp_path):
    """What is read with one to five bytes changed, put in or taken out has the arrays of before."""
    x, y = layouts.images(20, 6), np.arange(20) % 4
    path, originals = tmp_path / "own.npz", []
    for save in (np.savez, np.savez_compressed):
        save(path, x=x, y=y)
        originals.append(path.read_bytes())
    for seed in range(500):
        generator, content = random.Random(seed), bytearray(originals[seed % 2])
        for _ in range(generator.randint(1, 5)):
            position = generator.randrange(len(content))
            count = generator.choice([0, 1, 1, 1, 9])
            content[position : position + count] = generator.randbytes(generator.choice([0, 1, 1, 1, 4]))
        path.write_bytes(content)
        try:
            arrays = read_npz(path, "own.npz")
        except BadInput:
            continue
        for name, values in {"x": x, "y": y}.items():
            if name in arrays:  # else the name was changed, and npz_file refuses the file
                np.testing.assert_array_equal(arrays[name], values)
