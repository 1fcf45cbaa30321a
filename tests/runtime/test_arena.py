import errno
import os
import tempfile

import pytest
import torch

from hpcfl.comm.serial import SerialCommunicator
from hpcfl.errors import BadInput
from hpcfl.runtime import arena
from hpcfl.runtime.arena import RESERVED_BYTES, Arena, FreeSpace, choose_arena, reserve_arena

BIG = 10**9


@pytest.fixture
def comm():
    solo = SerialCommunicator()
    solo.setup_nodes(1, 0)
    return solo


@pytest.mark.parametrize(
    ("setting", "room", "kind", "why"),
    [
        ("auto", FreeSpace(BIG, BIG), "shared", ""),
        (
            "auto",
            FreeSpace(1000, BIG),
            "mapped",
            "h has 1,000 bytes free in shared memory; clients need 3,000",
        ),
        ("auto", FreeSpace(3000 + RESERVED_BYTES - 1, BIG), "mapped", "in shared memory"),
        ("auto", FreeSpace(3000 + RESERVED_BYTES, BIG), "shared", ""),
        ("auto", FreeSpace(1000, 2000), "private", "h has 2,000 bytes free in its temporary directory"),
        ("mapped", FreeSpace(BIG, BIG), "mapped", ""),
        ("private", FreeSpace(0, 0), "private", ""),
    ],
)
def test_the_first_kind_that_fits_is_chosen(setting, room, kind, why):
    """Two pretend nodes of host h need 1000 and 2000 bytes: the host must have room for both."""
    got, reason = choose_arena(setting, [("h", 0, 1000), ("h", 0, 1000), ("h", 1, 2000)], {"h": room})
    assert got == kind
    assert why in reason


def test_one_host_without_room_decides_for_all():
    rooms = {"a": FreeSpace(BIG, BIG), "b": FreeSpace(0, BIG)}
    assert choose_arena("auto", [("a", 0, 1), ("b", 1, 1)], rooms)[0] == "mapped"


def test_a_kind_that_was_asked_for_and_does_not_fit_is_bad_input():
    with pytest.raises(BadInput, match=r"runtime.arena = 'shared': h has 5 bytes free in shared memory"):
        choose_arena("shared", [("h", 0, 1)], {"h": FreeSpace(5, 5)})


def reserve(comm, setting, nbytes):
    """Reserves an arena where there is room for all kinds, as far as is known."""
    return reserve_arena(comm, setting, [("h", 0, nbytes)], {"h": FreeSpace(BIG, BIG)}, nbytes, leader=True)


@pytest.fixture
def directories(tmp_path, monkeypatch):
    """Stand-ins for shared memory and the temporary directory."""
    for name in ("shm", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(arena, "SHARED_MEMORY", str(tmp_path / "shm"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def test_where_blocks_cannot_be_allocated_the_next_kind_is_taken(comm, directories, monkeypatch):
    """Another job was faster, after free space was looked at: nothing is written, nothing left behind."""
    original = os.posix_fallocate
    full = ["shm"]

    def fallocate(handle, offset, nbytes):
        if any(name in os.readlink(f"/proc/self/fd/{handle}") for name in full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(handle, offset, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    got = reserve(comm, "auto", 5000)
    assert got.kind == "mapped"
    assert got.reason == f"5,000 bytes cannot be allocated in {directories}/shm: No space left on device"
    assert os.stat(got.path).st_blocks * 512 >= 5000
    with pytest.raises(BadInput, match=r"runtime.arena = 'shared': 5,000 bytes cannot be allocated"):
        reserve(comm, "shared", 5000)
    full.append("tmp")
    assert reserve(comm, "auto", 5000).kind == "private"
    assert [str(path) for path in directories.glob("*/*")] == [got.path]


@pytest.mark.parametrize("kind", arena.KINDS)
def test_vectors_are_apart_and_keep_what_is_written(comm, kind, directories):
    vectors = Arena(comm, reserve(comm, kind, 192), {3: 64, 5: 128}, leader=True).vectors
    assert {i: len(vector) for i, vector in vectors.items()} == {3: 64, 5: 128}
    vectors[3].fill_(1)
    vectors[5].fill_(2)
    assert vectors[3].eq(1).all()
    vectors[5].view(torch.float32)[0] = 1.5
    assert vectors[5].view(torch.float32)[0] == 1.5
    assert list(directories.glob("*/*")) == []  # the name of a file is gone at once


@pytest.mark.parametrize("kind", arena.KINDS)
def test_a_rank_without_clients_has_an_empty_arena(comm, kind):
    assert Arena(comm, reserve(comm, kind, 0), {}, leader=True).vectors == {}


def test_a_directory_that_is_not_there_has_no_room():
    assert arena.free_bytes("/no/such/place") == 0
