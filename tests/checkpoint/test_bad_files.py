"""Damaged, foreign and malicious files are never loaded, and never run."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from hpcfl.checkpoint import store as checkpoint_store
from hpcfl.checkpoint.store import CheckpointStore, DamagedCheckpoint, read_manifest
from hpcfl.data.prepared_file import open_prepared, verify_images
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from tests.helpers.cases import prepare_images
from tests.helpers.runs import assert_equal_runs, stop_early

DAMAGE = {
    "manifest truncated": lambda d: _cut(d / "manifest-3.json"),
    "manifest gone wrong": lambda d: (d / "manifest-3.json").write_text('{"format": 1}'),
    "manifest with an absurd size": lambda d: _claim(d / "manifest-3.json", 2**49),
    "manifest changed": lambda d: _swap(d / "manifest-3.json", b"nbytes", b"nbytez"),
    "manifest a pipe": lambda d: _pipe(d / "manifest-3.json"),
    "vectors a pipe": lambda d: _pipe(next(d.glob("3-*.bin"))),
    "vectors truncated": lambda d: _cut(next(d.glob("3-*.bin"))),
    "vectors flipped": lambda d: _flip(next(d.glob("3-*.bin"))),
    "vectors gone": lambda d: next(d.glob("3-*.bin")).unlink(),
    "server flipped": lambda d: _flip(next(d.glob("3-server*"))),
}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 64
    path.write_bytes(bytes(raw))


def _claim(path: Path, nbytes: int) -> None:
    """Writes a manifest that says this of the size of the server's state, with the right checksum."""
    outer = json.loads(path.read_text())
    inner = json.loads(outer["manifest"])
    inner["server"]["nbytes"] = nbytes
    body = json.dumps(inner)
    outer |= {"digest": checkpoint_store.digest(body.encode()), "manifest": body}
    path.write_text(json.dumps(outer))


def _swap(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(train, stop_after, damage):
    store = stop_early(train, stop_after)
    train("whole.h5")
    before = read_manifest(store.manifests()[1]).round
    DAMAGE[damage](store.path)
    done = train("run.h5")
    assert done.exit_code == 0, done.output
    assert "a checkpoint cannot be used" in done.output
    assert f"continues after round {before + 1} of 6" in done.output
    assert read_manifest(store.manifests()[0]).round == 5
    assert_equal_runs("run.h5", "whole.h5")


def test_without_any_usable_checkpoint_the_run_starts_again(train, stop_after):
    store = stop_early(train, stop_after)
    train("whole.h5")
    shutil.rmtree(store.path)
    done = train("run.h5")
    assert done.exit_code == 0
    assert "no checkpoint can be used: the run starts again" in done.output
    assert_equal_runs("run.h5", "whole.h5")


def test_a_checkpoint_of_another_run_is_not_loaded(train, stop_after):
    store = stop_early(train, stop_after)
    train("other.h5", "seed=3")
    shutil.rmtree(store.path)
    shutil.copytree("other.h5.ckpt", store.path)
    done = train("run.h5")
    assert "belongs to another run" in done.output
    assert "the run starts again" in done.output


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """Returns the bytes cut, with some of them changed, repeated or left out."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at : at + rng.randint(1, 40)]
            case 3:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 40)))
            case _:
                data[at:at] = data[at : at + 100]
    return bytes(data)


@pytest.mark.slow
def test_a_few_hundred_mutated_files(train, stop_after, tmp_path):
    store = stop_early(train, stop_after)
    prepare_images(tmp_path)
    manifest = read_manifest(store.manifests()[0])
    rng = random.Random(0)
    vectors, server = next(store.path.glob("3-*.bin")), store.path / manifest.server.file
    readers = {
        store.manifests()[0]: lambda path: read_manifest(path),
        vectors: lambda path: [store.read(p) for p in manifest.clients if p and p.file == path.name],
        server: lambda path: store.read_arrays(manifest.server),
        Path("run.h5"): lambda path: read_log(path),
        tmp_path / "tiny.h5": lambda path: verify_images(open_prepared(path)),
    }
    refused = 0
    for path, reader in readers.items():
        raw = path.read_bytes()
        for _ in range(80):
            path.write_bytes(mutated(raw, rng))
            try:
                reader(path)
            except (DamagedCheckpoint, BadInput):
                refused += 1
        path.write_bytes(raw)
    assert refused > 250


def test_a_manifest_that_points_elsewhere_is_damaged(train, stop_after):
    store = stop_early(train, stop_after)
    (path, _) = store.manifests()
    outer = json.loads(path.read_text())
    for bad in ("../../etc/passwd", "/etc/passwd", "3-1-ab.bin/../x", 7, None):
        inner = json.loads(outer["manifest"])
        next(entry for entry in inner["clients"] if entry)["file"] = bad
        body = json.dumps(inner)
        path.write_text(
            json.dumps({"format": 1, "digest": checkpoint_store.digest(body.encode()), "manifest": body})
        )
        with pytest.raises(DamagedCheckpoint):
            read_manifest(path)


def test_pickled_objects_are_never_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, ("ran", "w"))

    store = CheckpointStore(tmp_path)
    np.savez(tmp_path / "1-server-ab.npz", evil=np.array([Evil()], dtype=object))
    raw = (tmp_path / "1-server-ab.npz").read_bytes()
    piece = checkpoint_store.FileRange("1-server-ab.npz", 0, len(raw), checkpoint_store.digest(raw))
    with pytest.raises(DamagedCheckpoint, match=r"not an .npz of plain arrays"):
        store.read_arrays(piece)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"diverged": np.zeros(3, dtype=bool)}, "the server's diverged is not that of this run"),
        ({"download": np.full(24, 255, dtype=np.uint8)}, "cannot go on from there (the message"),
        ({"method.has_masks": np.zeros(3, dtype=bool)}, "cannot go on from there ("),
    ],
    ids=lambda value: str(*value) if isinstance(value, dict) else "",
)
def test_arrays_of_another_shape_are_damaged(train, stop_after, changed, says):
    store = stop_early(train, stop_after)
    (path, _) = store.manifests()
    manifest = read_manifest(path)
    arrays = store.read_arrays(manifest.server)
    piece = store.write_arrays("3-server-cd.npz", arrays | changed)
    store.write(
        checkpoint_store.Manifest(3, manifest.identity, manifest.channels_last, manifest.clients, piece)
    )
    done = train("run.h5")
    assert done.exit_code == 0
    assert says in done.output


def test_only_own_files_are_removed(train):
    """What else lies in the directory of checkpoints stays; what a killed run left does not."""
    directory = Path("run.h5.ckpt")
    directory.mkdir()
    own = ["1-server-ab.npz.host-1-ff.part", "manifest-3.json.host-1-ff.part", "1-0-ab.bin"]
    foreign = ["mine.part", "notes.txt", "manifest-x.json"]
    for name in (*own, *foreign):
        (directory / name).write_text("x")
    assert train("run.h5").exit_code == 0
    assert not any((directory / name).exists() for name in own)
    assert all((directory / name).read_text() == "x" for name in foreign)
