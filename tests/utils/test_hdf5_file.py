"""HDF5 files are checked before HDF5 opens them: damaged and hostile ones are refused with one sentence."""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.utils import hdf5_check, hdf5_file
from hpcfl.utils.hdf5_file import TRAILER, append_trailer, open_hdf5, sealed
from tests.helpers.logs import add, new_log
from tests.stress.mutations.kinds import make_log

SECRET = "bytes of another file"


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log that `hpcfl show` shows, in the current directory."""
    monkeypatch.chdir(tmp_path)
    make_log(Path("run.h5"))
    return Path("run.h5")


def check_refusal(done, reason: str = "") -> None:
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert done.output.startswith("hpcfl: cannot read run.h5: ")
    assert reason in done.output
    assert SECRET not in done.output


@pytest.mark.parametrize("writes", ["memory", "disk"])
def test_hdf5_ignores_the_trailer(tmp_path, writes):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(3)
    if writes == "memory":
        path.write_bytes(sealed(path.read_bytes()))
    else:
        append_trailer(path)
    for opened in (h5py.File(path), open_hdf5(path)):
        with opened as file:
            assert file["a"][()].tolist() == [0, 1, 2]


def test_any_changed_byte_is_found(log):
    whole = log.read_bytes()
    places = [8, 100, *range(0, len(whole), 997), *range(len(whole) - TRAILER.size, len(whole), 5)]
    for place in places[1:]:
        log.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(BadInput, match="damaged"):
            read_log(log)
    log.write_bytes(whole)
    assert read_log(log).rounds_done == 3


def test_hdf5_does_not_see_a_damaged_file(log, monkeypatch):
    log.write_bytes(log.read_bytes().replace(b"finished", b"Finished"))
    monkeypatch.setattr(h5py, "File", None)
    with pytest.raises(BadInput, match="do not match its digest"):
        read_log(log)


def test_only_images_are_left_out_of_the_digest(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(100, dtype=np.uint8)
        start = file["x"].id.get_offset()
    append_trailer(path, start, start + 100)
    whole = path.read_bytes()
    for place, is_image in ((start - 1, False), (start, True), (start + 99, True), (start + 100, False)):
        path.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
        if is_image:
            with open_hdf5(path) as file:
                assert file["x"][place - start] == ord("?")
        else:
            with pytest.raises(OSError, match="digest"), open_hdf5(path):
                pass


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5500])
def test_the_digest_does_not_depend_on_the_number_of_threads(monkeypatch, size):
    """SHA-256 of the digests of chunks, of the bytes before and after the images."""
    monkeypatch.setattr(hdf5_file, "CHUNK", 1000)
    data = np.random.default_rng(size).bytes(size)
    chunks = [data[i : i + 1000] for i in range(0, size, 1000)]
    hashes = b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)
    expected = hashlib.sha256(f"{size} 0 0 ".encode() + hashes).digest()
    for cores in (1, 2, 3, 8):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert sealed(data)[:size] == data
        assert TRAILER.unpack(sealed(data)[size:])[4] == expected


@pytest.mark.parametrize("place", [8, 1500, 3999, 4000, 6000, 9999])
def test_a_changed_byte_is_found_in_any_chunk(tmp_path, monkeypatch, place):
    monkeypatch.setattr(hdf5_file, "CHUNK", 1000)
    path = tmp_path / "a.h5"
    path.write_bytes(hdf5_file.SIGNATURE.ljust(10_000, b"."))
    append_trailer(path, 4000, 6000)
    whole = path.read_bytes()
    changed = whole[:place] + b"?" + whole[place + 1 :]
    for data, is_found in ((whole, False), (changed, place != 4000)):
        path.write_bytes(data)
        with open(path, "rb") as file:
            assert bool(hdf5_file._problem(path, file.fileno(), len(data))) == is_found


def test_a_trailer_of_another_version_is_no_digest(log, monkeypatch):
    """The file is then read by a child process first, as one without a trailer."""
    old = log.read_bytes()[: -TRAILER.size]
    log.write_bytes(old + TRAILER.pack(b"\x89hpcfl<1", len(old), 0, 0, bytes(32), b"1>hpcfl\n"))
    assert read_log(log).rounds_done == 3
    monkeypatch.setattr(hdf5_check, "__file__", "no such program")
    os.utime(log)
    with pytest.raises(BadInput, match=hdf5_file.DAMAGED):
        read_log(log)


def test_a_log_that_another_program_changed_is_read(log):
    with h5py.File(log, "r+") as file:
        file.attrs["note"] = "mine"
    assert TRAILER.unpack(log.read_bytes()[-TRAILER.size :])[0] != hdf5_file.MAGIC
    assert read_log(log).attributes["note"] == "mine"


PROGRAMS = {
    "crash": "import os; os.abort()",
    "spin": "import time; time.sleep(60)",
    "traceback": "raise KeyError",
    "reason": f"import sys; print('it is bad'); sys.exit({hdf5_check.REFUSED})",
}


@pytest.mark.parametrize("how", PROGRAMS)
def test_what_happens_to_a_child_is_one_sentence(log, hpcfl, monkeypatch, how):
    """A file without a digest is read by another process; whatever ends it, this one goes on."""
    Path("program.py").write_text(PROGRAMS[how])
    monkeypatch.setattr(hdf5_check, "__file__", str(Path("program.py").resolve()))
    monkeypatch.setattr(hdf5_file, "CHECK_SECONDS", 1.0)
    log.write_bytes(log.read_bytes()[: -TRAILER.size])
    check_refusal(hpcfl("show", log), "it is bad" if how == "reason" else hdf5_file.DAMAGED)


def test_the_child_is_limited(log):
    pid = os.fork()
    if pid == 0:
        hdf5_check._read_all(str(log))
        limits = [
            resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("CPU", "AS", "CORE")
        ]
        expected = 0 < limits[0] < time.process_time() + 3 and 0 < limits[1] < 2**36 and limits[2] == 0
        os._exit(0 if expected else 1)
    assert os.waitpid(pid, 0)[1] == 0


def _replace(file: h5py.File, name: str, make: Callable[[str], h5py.Dataset]) -> None:
    """Replaces a dataset by another one with the same attributes."""
    attributes = dict(file[name].attrs)
    del file[name]
    make(name).attrs.update(attributes)


def _large(file: h5py.File) -> None:
    _replace(file, "/client/loss", lambda name: file.create_dataset(name, (3, 2**33), dtype="f8"))


def _overflow(file: h5py.File) -> None:
    """The number of its values is 0 in 64 bits."""
    _replace(file, "/client/loss", lambda name: file.create_dataset(name, (2**32, 2**32), dtype="f8"))


def _external(file: h5py.File) -> None:
    storage = [("secret.txt", 0, 3)]
    _replace(file, "/round/loss", lambda name: file.create_dataset(name, (3,), dtype="u1", external=storage))


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "a", shape=(3,))
    _replace(file, "/round/loss", lambda name: file.create_virtual_dataset(name, layout))


def _link(file: h5py.File) -> None:
    file["/round/more"] = h5py.ExternalLink("other.h5", "a")


def _loop(file: h5py.File) -> None:
    file["/round/more"] = file["/round"]


def _references(file: h5py.File) -> None:
    file["/round/more"] = np.array([file["/round"].ref], dtype=h5py.ref_dtype)


HOSTILE = {
    _large: "more data than the file has",
    _overflow: "more data than the file has",
    _external: "/round/loss is stored in other files",
    _virtual: "/round/loss is stored in other files",
    _link: "more is a link",
    _loop: "neither a dataset nor a group",
    _references: "neither numbers nor strings",
}


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
@pytest.mark.parametrize("has_digest", [False, True])
def test_hostile_files_are_refused(log, hpcfl, change, has_digest):
    """Anyone can make a digest, so what a file declares is checked with and without one."""
    Path("secret.txt").write_text(SECRET)
    with h5py.File(log, "r+") as file:
        change(file)
    if has_digest:
        append_trailer(log)
    check_refusal(hpcfl("show", log), HOSTILE[change])


def test_strings_that_share_their_bytes_are_not_expanded(tmp_path):
    """A file of 50 kB whose 1000 strings are the same 20 kB."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        names = file.create_dataset("a", (1000,), dtype=h5py.string_dtype())
        names[0] = "x" * 20_000
        offset = names.id.get_offset()
    data = bytearray(path.read_bytes())
    data[offset : offset + 16_000] = data[offset : offset + 16] * 1000
    path.write_bytes(sealed(bytes(data)))
    with pytest.raises(OSError, match="more data than the file has"), open_hdf5(path):
        pass


@pytest.mark.parametrize("command", ["show", "diff", "watch", "export"])
def test_only_regular_files_are_opened(tmp_path, hpcfl, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("run.h5")
    more = {"diff": ["run.h5"], "watch": ["--once"], "export": ["--to", "csv"]}.get(command, [])
    check_refusal(hpcfl(command, "run.h5", *more), "not a regular file")


def test_texts_of_a_file_cannot_control_the_terminal(log, hpcfl):
    evil = "\x1b]0;evil\x07\x9b31m"
    with h5py.File(log, "r+") as file:
        for name in ("host", "device", "status"):
            file.attrs[name] = evil
        file["/clients/architecture"][:] = evil
    add(new_log(Path("other.h5")))
    for command in (["show", log], ["show", log, log], ["diff", log, "other.h5"], ["watch", log, "--once"]):
        done = hpcfl(*command)
        assert done.exit_code in (0, 1), done.output
        assert all(letter.isprintable() or letter == "\n" for letter in done.output), command
    with h5py.File(log, "r+") as file:
        file.attrs["config"] = f"'{evil}' = 3"
    done = hpcfl("show", log)
    check_refusal(done)
    assert "\x1b" not in done.output
